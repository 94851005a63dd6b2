//! Work that goes on beside other work: tasks on the event loop, and calls that may block.
//!
//! Used by every part that starts something. Tokio expands its bookkeeping for a task, some three
//! kilobytes of code, once for each type of work; here all work is boxed first, so that there is
//! one type of task on the loop and one on the threads. Nothing else spawns.

use std::any::Any;
use std::pin::Pin;

use protocol::{Fault, FaultCode};
use tokio::task::JoinHandle;

/// Work under way, whatever it is.
pub type Work<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs `work` beside everything else on the event loop's thread.
pub fn spawn(work: impl Future<Output = ()> + 'static) {
    spawn_boxed(Box::pin(work));
}

fn spawn_boxed(work: Work<()>) {
    tokio::task::spawn_local(work);
}

/// What a thread gives back, whatever it is.
type Given = Result<Box<dyn Any + Send>, Fault>;

/// Runs `work` where it may block. It begins at once; the future only gives its result.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> impl Future<Output = Result<T, Fault>> {
    let given = blocking_boxed(Box::new(move || Ok(Box::new(work()?))));
    async { Ok(*joined(given).await?.downcast().expect("it is what the work gave")) }
}

fn blocking_boxed(work: Box<dyn FnOnce() -> Given + Send>) -> JoinHandle<Given> {
    tokio::task::spawn_blocking(work)
}

async fn joined(given: JoinHandle<Given>) -> Given {
    given.await.unwrap_or_else(|_| {
        Err(Fault::new(FaultCode::Io, "the agent's work on files broke off; that is its bug"))
    })
}
