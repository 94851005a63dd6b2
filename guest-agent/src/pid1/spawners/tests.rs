use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

/// Work that says that it has begun, and hangs until the sender of its end is dropped.
fn hanging(spawners: &Arc<Spawners>, begun: &Sender<()>) -> (Option<u64>, Sender<()>) {
    let begun = begun.clone();
    let (end, ended) = channel::<()>();
    let ticket = spawners.give(Box::new(move || {
        begun.send(()).ok();
        ended.recv().ok();
    }));
    (ticket, end)
}

fn await_one(begun: &Receiver<()>) {
    begun.recv_timeout(DEADLINE).expect("a thread begins with it");
}

#[test]
fn starts_that_hang_get_company_up_to_a_bound_and_the_next_can_be_withdrawn() {
    let spawners = Arc::<Spawners>::default();
    let (sender, begun) = channel();
    let mut ends = Vec::new();
    for number in 0..SPAWNERS_MAX {
        let (ticket, end) = hanging(&spawners, &sender);
        ends.push(end);
        assert_eq!(ticket.is_some(), number >= SPAWNERS, "whether {number} has to wait");
        if ticket.is_some() {
            spawners.reinforce();
        }
        await_one(&begun);
    }
    let (ticket, _end) = hanging(&spawners, &sender);
    spawners.reinforce();
    assert_eq!(spawners.lock().threads, SPAWNERS_MAX);
    assert!(spawners.withdraw(ticket.expect("all threads hang")), "nobody has begun with it");
    let (ticket, _end) = hanging(&spawners, &sender);
    // One that goes on does what waits.
    ends.pop();
    await_one(&begun);
    assert!(!spawners.withdraw(ticket.expect("all threads hung")), "one has begun with it");
}

#[test]
fn starts_one_after_the_other_need_one_thread() {
    let spawners = Arc::<Spawners>::default();
    let (sender, begun) = channel();
    for _ in 0..10 {
        let (ticket, end) = hanging(&spawners, &sender);
        assert_eq!(ticket, None);
        await_one(&begun);
        drop(end);
        while spawners.lock().idle.is_empty() {
            std::thread::yield_now();
        }
    }
    assert_eq!(spawners.lock().threads, 1);
}
