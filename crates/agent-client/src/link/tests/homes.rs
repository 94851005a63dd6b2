//! A link that moves to the thread that its requests come from.

use std::future::Future;
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::agent::Agent;
use super::cuts::read_pattern;
use super::{quick, soon};
use crate::guest::Guest;
use crate::link::home;
use crate::link::limits::MOVE_AFTER_REQUESTS;

/// A home: its thread ends when the result is dropped.
struct Thread {
    runtime: tokio::runtime::Handle,
    end: Option<oneshot::Sender<()>>,
    joined: Option<thread::JoinHandle<()>>,
}

impl Thread {
    fn begin() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                home::settle();
                let _ = ended.await;
            });
        });
        Self { runtime: handle, end: Some(end), joined: Some(thread) }
    }

    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        soon(self.runtime.spawn(work)).await.unwrap()
    }

    async fn connect(&self, agent: &Agent) -> Guest {
        let address = agent.address();
        self.run(async move { Guest::connect(address, quick()).await.unwrap() }).await
    }

    /// Consecutive requests from this thread.
    async fn request(&self, guest: &Guest, count: u32) {
        let guest = guest.clone();
        self.run(async move {
            for _ in 0..count {
                guest.stat("/f", true).await.unwrap();
            }
        })
        .await;
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.end.take());
        self.joined.take().unwrap().join().unwrap();
    }
}

#[tokio::test]
async fn a_link_moves_to_the_thread_that_calls_and_outlives_the_one_that_made_it() {
    let agent = Agent::listen();
    let (maker, caller) = (Thread::begin(), Thread::begin());
    let guest = maker.connect(&agent).await;
    caller.request(&guest, MOVE_AFTER_REQUESTS + 1).await;
    // Its socket and its timers belong to another runtime now.
    drop(maker);
    caller.request(&guest, 1).await;
    assert_eq!(agent.world().links, 1, "it is the same link");
}

#[tokio::test]
async fn a_link_moves_at_once_to_the_thread_that_takes_it_over() {
    let agent = Agent::listen();
    let (maker, claimer) = (Thread::begin(), Thread::begin());
    let guest = maker.connect(&agent).await;
    let taken = guest.clone();
    claimer
        .run(async move {
            taken.move_here();
            taken.stat("/f", true).await.unwrap();
        })
        .await;
    drop(maker);
    claimer.request(&guest, 1).await;
    assert_eq!(agent.world().links, 1, "it is the same link");
    // This test's own runtime may end: it is no home.
    guest.move_here();
    soon(guest.stat("/f", true)).await.unwrap();
    drop(claimer);
    soon(guest.lost()).await;
}

#[tokio::test]
async fn a_link_that_several_threads_use_stays_where_it_was_made() {
    let agent = Agent::listen();
    let (maker, caller, other) = (Thread::begin(), Thread::begin(), Thread::begin());
    let guest = maker.connect(&agent).await;
    for _ in 0..4 * MOVE_AFTER_REQUESTS {
        caller.request(&guest, 1).await;
        other.request(&guest, 1).await;
        maker.request(&guest, 1).await;
    }
    drop(maker);
    let lost = guest.lost();
    soon(lost).await;
}

#[tokio::test]
async fn a_look_from_its_own_thread_now_and_then_does_not_keep_a_link_there() {
    let agent = Agent::listen();
    let (maker, caller) = (Thread::begin(), Thread::begin());
    let guest = maker.connect(&agent).await;
    // A command is five requests, and the recorder's look is one.
    for _ in 0..MOVE_AFTER_REQUESTS {
        caller.request(&guest, 5).await;
        maker.request(&guest, 1).await;
    }
    drop(maker);
    caller.request(&guest, 1).await;
}

#[tokio::test]
async fn a_link_stays_off_threads_whose_runtime_may_end() {
    let agent = Agent::listen();
    let maker = Thread::begin();
    let guest = maker.connect(&agent).await;
    // This test's own runtime is no home.
    for _ in 0..3 * MOVE_AFTER_REQUESTS {
        soon(guest.stat("/f", true)).await.unwrap();
    }
    drop(maker);
    soon(guest.lost()).await;
}

#[tokio::test]
async fn a_flow_goes_on_byte_for_byte_while_its_link_moves_and_is_cut() {
    let agent = Agent::listen();
    let (first, second) = (Thread::begin(), Thread::begin());
    let guest = first.connect(&agent).await;
    let length = 40_000_000;
    let (mut output, _, _) = soon(guest.read_file("/f", 0, Some(length))).await.unwrap();
    let reading = tokio::spawn(async move { read_pattern(&mut output, 0).await });
    let mut rounds = 0;
    while !reading.is_finished() {
        second.request(&guest, MOVE_AFTER_REQUESTS + 1).await;
        agent.cut();
        first.request(&guest, MOVE_AFTER_REQUESTS + 1).await;
        rounds += 1;
    }
    assert_eq!(reading.await.unwrap(), length);
    assert!(rounds > 2, "{rounds} rounds of moves");
    assert!(agent.world().links > 2, "{} links", agent.world().links);
}
