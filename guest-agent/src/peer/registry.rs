//! The clients of the agent, and how many of them have a link.
//!
//! `serve` adds and removes them; when one is gone for good, the sessions that were tied to it are ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use protocol::ClientId;
use protocol::hello::GoodbyeReason;
use protocol::sorted::SortedMap;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::client::Peer;
use crate::session::Sessions;

/// See the module's description.
pub struct Peers {
    sessions: Rc<Sessions>,
    by_client: RefCell<SortedMap<ClientId, Rc<Peer>>>,
    links: watch::Sender<usize>,
}

impl Peers {
    pub fn new(sessions: Rc<Sessions>) -> Self {
        Self { sessions, by_client: RefCell::default(), links: watch::Sender::new(0) }
    }

    pub fn get(&self, client: ClientId) -> Option<Rc<Peer>> {
        self.by_client.borrow().get(&client).cloned()
    }

    pub fn insert(&self, peer: &Rc<Peer>) {
        self.by_client.borrow_mut().insert(peer.client, peer.clone());
    }

    pub fn len(&self) -> usize {
        self.by_client.borrow().len()
    }

    /// Forgets a client and everything that was kept for it.
    pub fn remove(&self, peer: &Rc<Peer>) {
        let mut by_client = self.by_client.borrow_mut();
        let is_current = by_client.get(&peer.client).is_some_and(|known| Rc::ptr_eq(known, peer));
        if is_current {
            by_client.remove(&peer.client);
        }
        drop(by_client);
        peer.close_all();
        // The client may have connected again already, as another peer.
        if is_current {
            self.sessions.client_gone(peer.client);
        }
    }

    /// Forgets every client but `kept`, which has adopted the agent. Sessions that were tied to the
    /// others are tied to it.
    pub fn keep_only(&self, current: &Rc<Peer>) {
        let peers: Vec<_> = self.by_client.borrow().values().cloned().collect();
        for other in peers.iter().filter(|peer| !Rc::ptr_eq(peer, current)) {
            self.by_client.borrow_mut().remove(&other.client);
            other.evict();
            self.sessions.inherit(other.client, current.client);
        }
    }

    /// Resolves when the last link is gone.
    pub async fn none_linked(&self) {
        let mut links = self.links.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        links.wait_for(|links| *links == 0).await.ok();
    }

    pub fn link_opened(&self) {
        self.links.send_modify(|links| *links += 1);
    }

    pub fn link_closed(&self) {
        self.links.send_modify(|links| *links -= 1);
    }

    /// How many connections are open, handshakes included.
    pub fn link_count(&self) -> usize {
        *self.links.borrow()
    }

    pub fn are_linked(&self) -> bool {
        self.link_count() > 0
    }

    /// Waits until the linked clients have all output and exit records, and no holder has unread output.
    pub async fn flush(&self) {
        while !self.is_flushed() {
            sleep(FLUSH_POLL).await;
        }
    }

    fn is_flushed(&self) -> bool {
        let by_client = self.by_client.borrow();
        let mut linked = by_client.values().filter(|peer| peer.is_linked()).peekable();
        linked.peek().is_none()
            || (linked.all(|peer| peer.is_flushed()) && !self.sessions.are_held())
    }

    /// Says goodbye on every link, and waits at most `within` until the links have sent everything.
    pub async fn goodbye(&self, message: &str, within: Duration) {
        let peers: Vec<_> = self.by_client.borrow().values().cloned().collect();
        for peer in peers {
            peer.say_goodbye(GoodbyeReason::Stopping, message);
        }
        timeout(within, self.none_linked()).await.ok();
    }
}

/// How often a stopping agent checks whether its clients have everything.
const FLUSH_POLL: Duration = Duration::from_millis(2);
