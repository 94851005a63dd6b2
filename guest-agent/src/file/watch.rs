//! The handler of a watch: from the kernel's queue to the client's stream.
//!
//! A client that reads slowly stops the reading of the queue; the kernel then limits the queue, and
//! reports when it has dropped events.

use protocol::Fault;
use protocol::message::Reply;
use protocol::requests::Watch;
use tokio::io::Interest;
use tokio::time::timeout;

use super::limits::{MOVE_PAIR_WAIT, WATCH_IDLE_CHECK};
use super::path;
use super::refusal::refused_io;
use super::watcher::{Turn, Watcher};
use crate::flow::Outlet;
use crate::sys::ready;
use crate::task::{self, blocking};

/// Answers when everything is watched; the changes then flow into `outlet`, until the path itself
/// is gone.
pub async fn watch(ask: Watch, outlet: Outlet) -> Result<Reply, Fault> {
    let watcher = blocking(move || {
        let path = path::absolute(ask.path)?;
        Watcher::begin(path, ask.recursive)
    })
    .await?;
    task::spawn(async move {
        match run(watcher, &outlet).await {
            Ok(()) => outlet.close(),
            Err(fault) => outlet.fail(&fault),
        }
    });
    Ok(Reply::Done {})
}

async fn run(mut watcher: Watcher, outlet: &Outlet) -> Result<(), Fault> {
    // Each time around, the watcher has a new queue.
    loop {
        let refuse = |error: std::io::Error| refused_io("watch", watcher.root(), &error);
        let queue = watcher.queue().map_err(refuse)?;
        let queue = ready::watch(queue, Interest::READABLE).map_err(refuse)?;
        loop {
            let wait = if watcher.awaits_move() { MOVE_PAIR_WAIT } else { WATCH_IDLE_CHECK };
            let mut arrived = match timeout(wait, queue.readable()).await {
                Ok(Ok(arrived)) => Some(arrived),
                Ok(Err(error)) => return Err(refused_io("watch", watcher.root(), &error)),
                Err(_) if outlet.reader_count() == 0 => return Ok(()),
                Err(_) if watcher.awaits_move() => None,
                Err(_) => continue,
            };
            let is_readable = arrived.is_some();
            let (back, records, turn) = blocking(move || {
                let mut records = Vec::new();
                let turn = if is_readable {
                    watcher.turn(&mut records)?
                } else {
                    watcher.give_up_move(&mut records)
                };
                Ok((watcher, records, turn))
            })
            .await?;
            watcher = back;
            if let (Some(arrived), Turn::Drained) = (&mut arrived, turn) {
                arrived.clear_ready();
            }
            if outlet.write(&records).await.is_err() {
                return Ok(());
            }
            match turn {
                Turn::Drained | Turn::MoreLater => {}
                Turn::NewQueue => break,
                Turn::Ended => return Ok(()),
            }
        }
    }
}
