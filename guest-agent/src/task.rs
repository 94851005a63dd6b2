//! Background work: tasks on the event loop, calls that may block, and when work that nobody waits for is due. Nothing
//! else spawns.
//!
//! Tokio compiles its bookkeeping for a task, some three kilobytes of code, once for each type of
//! future. Here all work is boxed first, so that there is one type of task on the loop and one on the
//! threads.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use protocol::{Fault, FaultCode};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A slot of the third of tokio's wheels of timers, and each longer one is a multiple of it.
const SLOT_MS: u64 = 64 * 64;
/// A slot of the second, for pauses below that.
const SLOT_SHORT_MS: u64 = 64;

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

/// The last time within `pause` from now at which a timer wakes the process once, if the runtime began right after
/// `began`. A timer of seconds wakes it three times otherwise: tokio hands it down to a finer wheel when its slot
/// begins, unless it is due then. A pause is longer than a slot; a short one that ends in the next slot of the third
/// wheel wakes it twice.
pub fn due_in_one_wake(began: Instant, pause: Duration) -> Instant {
    let due_ms = (began.elapsed() + pause).as_millis() as u64;
    let slot_ms = if pause.as_millis() < u128::from(SLOT_MS) { SLOT_SHORT_MS } else { SLOT_MS };
    began + Duration::from_millis(due_ms / slot_ms * slot_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timers_that_wake_once_are_due_where_a_slot_begins_and_steadily() {
        let began = Instant::now();
        let mut dues = Vec::new();
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(5)).await;
            let due = due_in_one_wake(began, Duration::from_millis(12_500));
            tokio::time::sleep_until(due).await;
            dues.push(began.elapsed().as_millis() as u64);
        }
        assert_eq!(dues, [12_288, 24_576, 36_864]);
        assert!(dues.iter().all(|due_ms| due_ms % SLOT_MS == 0));
        for expected_ms in [37_888, 38_912, 39_936, 40_960, 41_984] {
            tokio::time::advance(Duration::from_millis(5)).await;
            tokio::time::sleep_until(due_in_one_wake(began, Duration::from_millis(1050))).await;
            assert_eq!(began.elapsed().as_millis(), expected_ms);
        }
    }
}
