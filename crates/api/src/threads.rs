//! The threads that connections are served on, one for each processor, each with a runtime of its own.
//!
//! A request is read, carried out and answered on one thread, and the link of the sandbox that it is for
//! moves there ([`agent_client::link::home`]), so a command is handed from thread to thread only where
//! clients on several threads use one sandbox. What a connection leaves behind, such as a sandbox or a
//! call that goes on, stays on its thread: they end after everything else, with [`Threads`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::limits::SERVING_THREADS_MAX;
use agent_client::link::home;

/// See the module's description. Dropping it ends the threads, with all that is on them.
pub struct Threads {
    threads: Vec<Thread>,
}

struct Thread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
}

/// One connection on a thread. Dropping it gives the place free.
pub struct Seat {
    connections: Arc<AtomicUsize>,
}

impl Threads {
    /// Starts as many as there are processors.
    pub fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let count = count.min(SERVING_THREADS_MAX);
        let threads = (0..count).map(Thread::start).collect::<io::Result<_>>()?;
        Ok(Self { threads })
    }

    /// The thread with the fewest connections, and a seat on it. Of equals it is always the same one, so
    /// that a client alone finds its sandboxes where it was before.
    pub fn seat(&self) -> (&Handle, Seat) {
        let open = |thread: &&Thread| thread.connections.load(Ordering::Relaxed);
        let thread = self.threads.iter().min_by_key(open).expect("there is at least one");
        thread.connections.fetch_add(1, Ordering::Relaxed);
        (&thread.runtime, Seat { connections: Arc::clone(&thread.connections) })
    }
}

impl Thread {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new().name(format!("serve-{number}")).spawn(move || {
            runtime.block_on(async {
                home::settle();
                let _ = ended.await;
            });
            // Do not wait for threads that still wait for a disk.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, connections: Arc::default(), _end: end })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_spread_and_one_alone_is_always_on_the_same_thread() {
        let threads = Threads { threads: (0..2).map(|at| Thread::start(at).unwrap()).collect() };
        let on =
            |runtime: &Handle| runtime.spawn(async { thread::current().name().map(str::to_owned) });
        let mut first = None;
        for _ in 0..3 {
            let (runtime, _seat) = threads.seat();
            let name = on(runtime).await.unwrap();
            assert_eq!(*first.get_or_insert_with(|| name.clone()), name);
        }
        let seats: Vec<_> = (0..4).map(|_| threads.seat()).collect();
        for (at, (runtime, _)) in seats.iter().enumerate() {
            assert_eq!(on(runtime).await.unwrap(), Some(format!("serve-{}", at % 2)));
        }
        drop(seats);
        assert!(threads.threads.iter().all(|it| it.connections.load(Ordering::Relaxed) == 0));
    }

    #[tokio::test]
    async fn the_threads_end_with_what_is_on_them() {
        let threads = Threads::start().unwrap();
        let (runtime, _seat) = threads.seat();
        let endless = runtime.spawn(std::future::pending::<()>());
        drop(threads);
        assert!(endless.await.unwrap_err().is_cancelled());
    }
}
