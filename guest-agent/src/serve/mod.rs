//! Clients and their links: bytes ↔ frames, the handshake, back-pressure, the end.
//!
//! A *client* is a bridge or a debugger; a *link* is the connection it has at the moment. A client
//! outlives its links: its streams wait for it for as long as it asked for.

mod handshake;
mod link;
mod peer;

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use protocol::ClientId;
use protocol::hello::GoodbyeReason;
use protocol::sorted::SortedMap;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub use peer::Peer;

use crate::agent::Agent;
use crate::limits::LINKS_MAX;
use crate::task;

/// All clients, and the number of links.
pub struct Peers {
    by_client: RefCell<SortedMap<ClientId, Rc<Peer>>>,
    links: watch::Sender<usize>,
    /// Whether any link has ever said hello.
    greeted: Cell<bool>,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            by_client: RefCell::default(),
            links: watch::Sender::new(0),
            greeted: Cell::new(false),
        }
    }
}

impl Peers {
    fn get(&self, client: ClientId) -> Option<Rc<Peer>> {
        self.by_client.borrow().get(&client).cloned()
    }

    fn insert(&self, peer: &Rc<Peer>) {
        self.by_client.borrow_mut().insert(peer.client, peer.clone());
    }

    fn len(&self) -> usize {
        self.by_client.borrow().len()
    }

    /// Forgets a client and everything that was kept for it.
    fn remove(&self, agent: &Agent, peer: &Rc<Peer>) {
        let mut by_client = self.by_client.borrow_mut();
        let is_current = by_client.get(&peer.client).is_some_and(|known| Rc::ptr_eq(known, peer));
        if is_current {
            by_client.remove(&peer.client);
        }
        drop(by_client);
        peer.close_all();
        // The client may be here again already, under another peer.
        if is_current {
            agent.sessions.client_gone(agent, peer.client);
        }
    }

    /// Forgets every client but one, which has adopted the agent: theirs are links of another host. A
    /// session that dies with one of them dies with the one that stays.
    pub fn keep_only(&self, agent: &Agent, kept: &Rc<Peer>) {
        let peers: Vec<_> = self.by_client.borrow().values().cloned().collect();
        for ghost in peers.iter().filter(|peer| !Rc::ptr_eq(peer, kept)) {
            self.by_client.borrow_mut().remove(&ghost.client);
            ghost.evict();
            agent.sessions.inherit(ghost.client, kept.client);
        }
    }

    /// Resolves when the last link is gone.
    pub async fn none_linked(&self) {
        let mut links = self.links.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        links.wait_for(|links| *links == 0).await.ok();
    }

    pub fn are_linked(&self) -> bool {
        *self.links.borrow() > 0
    }

    /// Waits until the clients that are there have all that sessions have said and how they ended,
    /// and no holder is still to come for it.
    pub async fn flush(&self, agent: &Agent) {
        while !self.is_flushed(agent) {
            sleep(FLUSH_POLL).await;
        }
    }

    fn is_flushed(&self, agent: &Agent) -> bool {
        let by_client = self.by_client.borrow();
        let mut linked = by_client.values().filter(|peer| peer.is_linked()).peekable();
        linked.peek().is_none()
            || (linked.all(|peer| peer.is_flushed()) && !agent.sessions.are_held())
    }

    /// Says goodbye on every link and waits until what was queued has been taken, or `within`.
    pub async fn goodbye(&self, message: &str, within: Duration) {
        let peers: Vec<_> = self.by_client.borrow().values().cloned().collect();
        for peer in peers {
            peer.say_goodbye(GoodbyeReason::Stopping, message);
        }
        timeout(within, self.none_linked()).await.ok();
    }
}

/// How often a stopping agent looks whether its clients have everything.
const FLUSH_POLL: Duration = Duration::from_millis(2);

/// Serves one connection in the background.
pub fn accept(agent: &Rc<Agent>, socket: OwnedFd) {
    let links = *agent.peers.links.borrow();
    if links >= LINKS_MAX {
        // Closing at once is all that can be done for it; the other end sees the end of the file.
        return;
    }
    let counted = Counted::new(agent.clone());
    task::spawn(async move { link::run(&counted.0, socket).await });
}

/// A link is counted for as long as its work lives, even if that ends by a panic: an agent that
/// ends with its last link must not wait for one that is no more.
struct Counted(Rc<Agent>);

impl Counted {
    fn new(agent: Rc<Agent>) -> Self {
        agent.peers.links.send_modify(|links| *links += 1);
        Self(agent)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.peers.links.send_modify(|links| *links -= 1);
    }
}
