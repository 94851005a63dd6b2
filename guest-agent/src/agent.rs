//! What every part of a running agent shares: one value behind an `Rc`, on one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use protocol::hello::AgentInfo;
use protocol::limits;
use protocol::requests::GroupLimits;
use protocol::spool::Budget;
use protocol::{AgentId, Fault, FaultCode, Text};
use tokio::sync::Notify;

use crate::cgroup::{CgroupSupport, Groups, SessionGroup};
use crate::config::Config;
use crate::freeze::{self, Freezer};
use crate::metrics::Metrics;
use crate::pid1::reaper::Reaper;
use crate::port::Gates;
use crate::repl::Contexts;
use crate::serve::Peers;
use crate::session::Sessions;
use crate::sys::{clock, entropy, resource};

/// See the module's description.
pub struct Agent {
    pub config: Config,
    /// Another after every adoption.
    pub id: Cell<AgentId>,
    pub reaper: Reaper,
    /// The memory of all spools.
    pub budget: Budget,
    /// Control groups for sessions, where there are any.
    pub groups: RefCell<Option<Groups>>,
    pub sessions: Sessions,
    pub contexts: Contexts,
    pub peers: Peers,
    pub metrics: Metrics,
    pub freezer: Freezer,
    /// Where programs find the host.
    pub gates: Rc<Gates>,
    /// The environment of every program, under what a start adds.
    env: RefCell<Vec<(Text, Text)>>,
    /// PID 1, which is another process, has told the agent to end.
    pub is_dismissed: Cell<bool>,
    stopping: Cell<bool>,
    /// The grace of the stop that was asked for.
    stop_grace: Cell<Option<Duration>>,
    stop_asked: Notify,
    /// As the machine has them at the moment.
    cpus: Cell<u32>,
    info: AgentInfo,
}

impl Agent {
    pub fn new(config: Config, reaper: Reaper, groups: CgroupSupport) -> std::io::Result<Rc<Self>> {
        let mut id = [0; 16];
        entropy::fill(&mut id)?;
        let memory_bytes = resource::memory_bytes();
        let share = (memory_bytes / limits::SPOOLS_MEMORY_SHARE) as usize;
        let (groups, cgroup_missing) = match groups {
            CgroupSupport::Available(groups) => (Some(groups), None),
            CgroupSupport::Unavailable { reason } => (None, Some(reason)),
        };
        let controllers =
            groups.as_ref().map_or(Vec::new(), |groups| groups.controllers().to_vec());
        let info = AgentInfo {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            init: config.init,
            machine: config.machine,
            // Its clock began with the machine.
            kernel_us: config.machine.then_some(config.began_us),
            ready_cpu_us: resource::cpu_us(),
            ready_us: clock::monotonic_us() - config.began_us,
            cgroup_missing,
            controllers,
            boot: config.boot.clone(),
            ..AgentInfo::default()
        };
        let env = config.env.iter();
        let env = env.map(|(name, value)| (Text::from(&**name), Text::from(&**value))).collect();
        Ok(Rc::new(Self {
            metrics: Metrics::new(config.init || config.machine),
            freezer: Freezer::default(),
            gates: Rc::default(),
            env: RefCell::new(env),
            config,
            id: Cell::new(AgentId(id)),
            reaper,
            budget: Budget::new(share.clamp(limits::SPOOL_BYTES_MIN, limits::SPOOLS_BYTES_MAX)),
            groups: RefCell::new(groups),
            sessions: Sessions::default(),
            contexts: Contexts::default(),
            peers: Peers::default(),
            is_dismissed: Cell::new(false),
            stopping: Cell::new(false),
            stop_grace: Cell::new(None),
            stop_asked: Notify::new(),
            cpus: Cell::new(resource::cpus()),
            info,
        }))
    }

    /// What this agent says of itself at this moment.
    pub fn info(&self) -> AgentInfo {
        let counts = self.reaper.counts();
        AgentInfo {
            processes_reaped: counts.reaped + counts.strangers,
            hostname: resource::hostname(),
            time_ms: clock::wall_ms(),
            uptime_ms: (clock::monotonic_us() - self.config.began_us) / 1000,
            memory_bytes: resource::memory_bytes(),
            cpus: self.cpus.get(),
            ..self.info.clone()
        }
    }

    /// A group for a session or an interpreter (`whose`), if the machine has groups. Without one it
    /// runs too; what that means is said.
    pub fn take_group(
        &self,
        whose: &str,
        limits: GroupLimits,
        warnings: &mut Vec<String>,
    ) -> Option<SessionGroup> {
        match self.groups.borrow_mut().as_mut().map(|groups| groups.take(&limits.into())) {
            Some(Ok(group)) => return Some(group),
            Some(Err(error)) => warnings.push(format!("{whose} has no control group: {error}")),
            None if limits != GroupLimits::default() => {
                warnings
                    .push("limits are not enforced: there are no control groups here".to_owned());
            }
            None => {}
        }
        None
    }

    /// Gives back the control group of something that has ended.
    pub fn retire_group(&self, group: Option<SessionGroup>) {
        if let (Some(group), Some(groups)) = (group, self.groups.borrow_mut().as_mut()) {
            groups.retire(group);
        }
    }

    /// The sandbox's environment. What a client gives goes behind it, because of a name given twice
    /// the later value holds.
    pub fn environment(&self) -> impl Iterator<Item = (Text, Text)> {
        self.env.borrow().clone().into_iter()
    }

    /// Puts variables over those of the sandbox, and says whether that has changed anything.
    pub fn extend_environment(&self, given: Vec<(Text, Text)>) -> bool {
        let mut env = self.env.borrow_mut();
        let before = env.clone();
        for (name, value) in given {
            match env.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => env.push((name, value)),
            }
        }
        *env != before
    }

    /// Refuses variables that would leave no room for those of a start.
    pub fn check_environment(&self, given: &[(Text, Text)]) -> Result<(), Fault> {
        let env = self.env.borrow();
        let sizes = env
            .iter()
            .chain(given)
            .map(|(name, value)| name.as_bytes().len() + value.as_bytes().len());
        if sizes.sum::<usize>() > limits::ARGUMENTS_BYTES_MAX {
            return Err(Fault::new(FaultCode::Limit, "the sandbox's environment is too large"));
        }
        Ok(())
    }

    pub fn cpus(&self) -> u32 {
        self.cpus.get()
    }

    /// Counts the processors anew.
    pub fn count_cpus(&self) {
        self.cpus.set(resource::cpus());
    }

    /// Asks for the end of everything. The first grace counts, unless a later one is shorter.
    pub fn stop(&self, grace: Duration) {
        // What stands still does not hear that it shall end.
        freeze::thaw(self).ok();
        let grace = self.stop_grace.get().map_or(grace, |earlier| earlier.min(grace));
        self.stop_grace.set(Some(grace));
        self.stop_asked.notify_one();
    }

    /// Resolves when somebody has asked for the end, with the grace for processes. From then on no
    /// new work is taken.
    pub async fn stop_asked(&self) -> Duration {
        loop {
            if let Some(grace) = self.stop_grace.get() {
                self.stopping.set(true);
                return grace;
            }
            self.stop_asked.notified().await;
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Refuses new work while the workload is frozen, and once the agent is stopping.
    pub fn check_running(&self) -> Result<(), Fault> {
        if self.freezer.is_frozen() {
            return Err(Fault::new(FaultCode::Conflict, "the sandbox is frozen"));
        }
        self.check_not_stopping()
    }

    pub fn check_not_stopping(&self) -> Result<(), Fault> {
        if self.is_stopping() {
            return Err(Fault::new(FaultCode::Stopping, "the sandbox is stopping"));
        }
        Ok(())
    }
}
