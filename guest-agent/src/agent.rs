//! The running agent: its parts, put together over one [`Ground`].
//!
//! `run` makes it; `router`, `serve`, `doors` and `adopt` work with it. The parts know nothing of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use protocol::AgentId;

use crate::cgroup::CgroupSupport;
use crate::config::Config;
use crate::freeze;
use crate::ground::Ground;
use crate::metrics::Metrics;
use crate::peer::Peers;
use crate::pid1::reaper::Reaper;
use crate::port::Gates;
use crate::repl::Contexts;
use crate::session::Sessions;
use crate::sys::entropy;

/// See the module's description.
pub struct Agent {
    pub ground: Rc<Ground>,
    /// Changes with every adoption.
    pub id: Cell<AgentId>,
    pub sessions: Rc<Sessions>,
    pub contexts: Contexts,
    pub metrics: Rc<Metrics>,
    /// Where programs reach the host.
    pub gates: Rc<Gates>,
    pub peers: Peers,
}

impl Agent {
    pub fn new(config: Config, reaper: Reaper, groups: CgroupSupport) -> std::io::Result<Rc<Self>> {
        let mut id = [0; 16];
        entropy::fill(&mut id)?;
        let ground = Ground::new(config, reaper, groups);
        let sessions = Sessions::new(ground.clone());
        Ok(Rc::new(Self {
            id: Cell::new(AgentId(id)),
            contexts: Contexts::new(ground.clone()),
            metrics: Metrics::new(ground.clone()),
            gates: Rc::default(),
            peers: Peers::new(sessions.clone()),
            sessions,
            ground,
        }))
    }

    /// Requests the end of everything.
    pub fn stop(&self, grace: Duration) {
        // A frozen process cannot act on the signal that ends it.
        freeze::thaw(&self.ground).ok();
        self.ground.request_stop(grace);
    }
}
