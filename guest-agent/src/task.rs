//! Background work: tasks on the event loop, and calls that may block. Nothing else spawns.
//!
//! Tokio compiles its bookkeeping for a task, some three kilobytes of code, once for each type of
//! future. Here all work is boxed first, so that there is one type of task on the loop and one on the
//! threads.

use std::any::Any;
use std::pin::Pin;

use protocol::{Fault, FaultCode};
use tokio::task::JoinHandle;

/// Work under way, of any kind.
pub type Work<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs `work` in the background, on the event loop's thread.
pub fn spawn(work: impl Future<Output = ()> + 'static) {
    spawn_boxed(Box::pin(work));
}

fn spawn_boxed(work: Work<()>) {
    tokio::task::spawn_local(work);
}

/// The result of a blocking thread, of any type.
type BlockingResult = Result<Box<dyn Any + Send>, Fault>;

/// Runs `work` on a thread where it may block. It begins at once; the future returns its result.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> impl Future<Output = Result<T, Fault>> {
    let result = blocking_boxed(Box::new(move || Ok(Box::new(work()?))));
    async { Ok(*joined(result).await?.downcast().expect("it is what the work gave")) }
}

fn blocking_boxed(work: Box<dyn FnOnce() -> BlockingResult + Send>) -> JoinHandle<BlockingResult> {
    tokio::task::spawn_blocking(work)
}

async fn joined(result: JoinHandle<BlockingResult>) -> BlockingResult {
    result.await.unwrap_or_else(|_| {
        Err(Fault::new(FaultCode::Io, "a file operation panicked, which is a bug in the agent"))
    })
}
