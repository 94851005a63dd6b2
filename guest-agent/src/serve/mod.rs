//! Links: bytes ↔ frames, the handshake, back-pressure, the end. `doors` hands over the connections,
//! and requests go to `router`.

mod handshake;
mod link;

use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::agent::Agent;
use crate::limits::LINKS_MAX;
use crate::task;

/// Serves one connection in the background.
pub fn accept(agent: &Rc<Agent>, socket: OwnedFd) {
    if agent.peers.link_count() >= LINKS_MAX {
        // The only option is to close it at once; the other end sees the end of the file.
        return;
    }
    let counted = CountedLink::new(agent.clone());
    task::spawn(async move { link::run(&counted.0, socket).await });
}

/// A link counts for as long as its task lives, even if the task panics: an agent that ends with its
/// last link must not wait for one that is gone.
struct CountedLink(Rc<Agent>);

impl CountedLink {
    fn new(agent: Rc<Agent>) -> Self {
        agent.peers.link_opened();
        Self(agent)
    }
}

impl Drop for CountedLink {
    fn drop(&mut self) {
        self.0.peers.link_closed();
    }
}
