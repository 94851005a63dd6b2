//! What the parts of a running agent share: its configuration, the reaper, the control groups, the
//! memory budget of all spools, the environment of programs, and whether new work may begin.
//!
//! [`Agent`](crate::agent::Agent) creates it and passes it to the parts, which all run on one thread. It
//! knows none of the parts, and does none of their work.

mod activity;
mod environment;
mod freezer;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use protocol::hello::AgentInfo;
use protocol::limits;
use protocol::requests::GroupLimits;
use protocol::spool::Budget;
use protocol::{Fault, FaultCode};
use tokio::sync::Notify;

pub use activity::{Activities, Activity};
pub use environment::SandboxEnvironment;
pub use freezer::Freezer;

use crate::cgroup::{CgroupSupport, Groups, OlderGroups, SessionGroup};
use crate::config::Config;
use crate::pid1::reaper::Reaper;
use crate::sys::{clock, resource};

/// See the module's description.
pub struct Ground {
    pub config: Config,
    pub reaper: Reaper,
    /// The memory of all spools.
    pub budget: Budget,
    /// The control groups of sessions and interpreters, or nothing where the machine has none.
    pub groups: RefCell<Option<Groups>>,
    pub older_groups: OlderGroups,
    pub environment: SandboxEnvironment,
    pub freezer: Freezer,
    pub activities: Rc<Activities>,
    stopping: Cell<bool>,
    /// The grace of the stop that was requested.
    stop_grace: Cell<Option<Duration>>,
    stop_requested: Notify,
    /// The number of processors, which can change while the machine runs.
    cpus: Cell<u32>,
    /// The part of the agent's description that never changes.
    info: AgentInfo,
}

impl Ground {
    pub fn new(mut config: Config, reaper: Reaper, groups: CgroupSupport) -> Rc<Self> {
        let share = (resource::memory_bytes() / limits::SPOOLS_MEMORY_SHARE) as usize;
        let CgroupSupport { groups, older } = groups;
        let (groups, cgroup_missing) = match groups {
            Ok(groups) => (Some(groups), None),
            Err(reason) => (None, Some(reason)),
        };
        let controllers =
            groups.as_ref().map_or(Vec::new(), |groups| groups.controllers().to_vec());
        let info = AgentInfo {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            init: config.init,
            machine: config.machine,
            // The monotonic clock began with the machine.
            kernel_us: config.machine.then_some(config.began_us),
            ready_cpu_us: resource::cpu_us(),
            ready_us: clock::monotonic_us() - config.began_us,
            cgroup_missing,
            controllers,
            boot: std::mem::take(&mut config.boot),
            ..AgentInfo::default()
        };
        Rc::new(Self {
            environment: SandboxEnvironment::new(&config.env),
            config,
            reaper,
            budget: Budget::new(share.clamp(limits::SPOOL_BYTES_MIN, limits::SPOOLS_BYTES_MAX)),
            groups: RefCell::new(groups),
            older_groups: older,
            freezer: Freezer::default(),
            activities: Rc::default(),
            stopping: Cell::new(false),
            stop_grace: Cell::new(None),
            stop_requested: Notify::new(),
            cpus: Cell::new(resource::cpus()),
            info,
        })
    }

    /// The agent's description of itself at this moment.
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

    /// The memory that a session with this limit can use: a machine's is all that it has, and elsewhere there
    /// may be no limit.
    pub fn memory_limit(&self, own: Option<u64>) -> Option<u64> {
        own.or_else(|| self.groups.borrow().as_ref()?.memory_limit())
            .or_else(|| self.older_groups.limit_bytes())
            .or_else(|| self.config.machine.then(resource::memory_bytes))
    }

    /// How many processes of the sandbox the kernel has killed because memory ran out, if it does not count
    /// them per group.
    pub fn sandbox_oom_kills(&self) -> u64 {
        self.older_groups.oom_kills().unwrap_or(0)
    }

    /// Why there are no control groups, if there are none.
    pub fn cgroup_missing(&self) -> Option<&str> {
        self.info.cgroup_missing.as_deref()
    }

    /// A control group for `whose` process, which is a session's or an interpreter's. Without groups the
    /// process runs without one, and a warning says what that means.
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

    /// Gives back the control group of a process that has ended.
    pub fn retire_group(&self, group: Option<SessionGroup>) {
        if let (Some(group), Some(groups)) = (group, self.groups.borrow_mut().as_mut()) {
            groups.retire(group);
        }
    }

    /// Makes the control group that the next start uses, so that the start need not wait for it.
    pub fn refill_groups(&self) {
        if let Some(groups) = self.groups.borrow_mut().as_mut() {
            groups.refill();
        }
    }

    /// Removes control groups that were still busy when they were given back.
    pub fn sweep_groups(&self) {
        if let Some(groups) = self.groups.borrow_mut().as_mut() {
            groups.sweep();
        }
    }

    pub fn cpus(&self) -> u32 {
        self.cpus.get()
    }

    /// Counts the processors again.
    pub fn count_cpus(&self) {
        self.cpus.set(resource::cpus());
    }

    /// Requests the end of the agent. Of several requests the shortest grace counts.
    pub fn request_stop(&self, grace: Duration) {
        let grace = self.stop_grace.get().map_or(grace, |earlier| earlier.min(grace));
        self.stop_grace.set(Some(grace));
        self.stop_requested.notify_one();
    }

    /// Resolves when the end was requested, with the grace for processes. From then on no new work is
    /// accepted.
    pub async fn stop_requested(&self) -> Duration {
        loop {
            if let Some(grace) = self.stop_grace.get() {
                self.stopping.set(true);
                return grace;
            }
            self.stop_requested.notified().await;
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
