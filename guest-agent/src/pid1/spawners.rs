//! The threads that start programs, so that the event loop never waits for a file system: a child looks up its
//! working directory and its program before it executes, and its parent's thread is suspended meanwhile.
//!
//! [`reaper`](super::reaper) alone gives them work. A thread starts one program at a time. It has the
//! credentials, the capabilities and the filter of the event loop's thread, as its children need them. It is made
//! with the first start and never ends: a program can ask the kernel for a signal when its parent dies, and
//! gets it when the thread that has started it does. A thread without work waits, and nothing wakes it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::{SPAWNER_STACK_BYTES, SPAWNERS, SPAWNERS_MAX};
use crate::sys::spawn::block_signals;

#[cfg(test)]
mod tests;

/// What the kernel calls them.
const NAME: &str = "spawner";

/// One start.
type Work = Box<dyn FnOnce() + Send>;

/// See the module's description.
#[derive(Default)]
pub struct Spawners {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, Work)>,
    /// The ticket of the last work.
    ticket: u64,
    threads: usize,
    /// Threads without work. The last to have had some is the next to get some: its stack is still in the caches.
    idle: Vec<Arc<Condvar>>,
}

impl Spawners {
    /// Queues a start, and returns its ticket if it has to wait for a thread. Without any thread the work is
    /// dropped.
    pub fn give(self: &Arc<Self>, work: Work) -> Option<u64> {
        let mut state = self.lock();
        state.ticket += 1;
        let ticket = state.ticket;
        state.queue.push_back((ticket, work));
        let idle = state.idle.pop();
        let has_thread = idle.is_some() || state.threads < SPAWNERS && self.add(&mut state);
        if state.threads == 0 {
            state.queue.clear();
        }
        drop(state);
        if let Some(idle) = idle {
            idle.notify_one();
        }
        (!has_thread).then_some(ticket)
    }

    /// A start has waited for long: another thread, if that helps and there may be one.
    pub fn reinforce(self: &Arc<Self>) {
        let mut state = self.lock();
        if !state.queue.is_empty() && state.threads < SPAWNERS_MAX {
            self.add(&mut state);
        }
    }

    /// Takes a start back, unless a thread has begun with it.
    pub fn withdraw(&self, ticket: u64) -> bool {
        let mut state = self.lock();
        let before = state.queue.len();
        state.queue.retain(|(other, _)| *other != ticket);
        state.queue.len() < before
    }

    /// Adds a thread. Without one more, those that there are do the work.
    fn add(self: &Arc<Self>, state: &mut State) -> bool {
        let spawners = self.clone();
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        let thread = thread.stack_size(SPAWNER_STACK_BYTES);
        let added = thread.spawn(move || spawners.work()).is_ok();
        state.threads += usize::from(added);
        added
    }

    fn work(&self) {
        block_signals();
        let woken = Arc::new(Condvar::new());
        let mut state = self.lock();
        loop {
            if let Some((_, work)) = state.queue.pop_front() {
                drop(state);
                work();
                state = self.lock();
                continue;
            }
            state.idle.push(woken.clone());
            let rests = |state: &mut State| state.idle.iter().any(|idle| Arc::ptr_eq(idle, &woken));
            state = woken.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
