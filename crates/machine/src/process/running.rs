//! A process machine that runs: its supervisor, its agent, and its pauses.
//!
//! ```text
//! pause    hold the link ── freeze the control group
//! resume   thaw ── the link continues, or is made ── the agent answers
//! ```
//!
//! It shares the host's kernel, so its clock is right when it goes on; timers that were due meanwhile fire
//! then, as after a host's sleep.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::freezer::{FreezeError, Freezer};
use crate::limits::{RESUME_PATIENCE, SET_RIGHT_MAX, WAKE_DEADLINE};
use crate::supervisor::Supervisor;
use crate::{
    Bind, BoxFuture, Capability, MachineError, MachineExit, MachineKind, ProcessIdentity, Resumed,
    Running, SandboxId, Suspend, Trace,
};
use agent_client::guest::{Guest, GuestError};
use agent_client::link::{Address, Timing};

/// A sandbox's supervisor and its agent.
pub(super) struct Process {
    pub id: SandboxId,
    /// Absent as long as its agent has not answered this bridge.
    pub guest: Mutex<Option<Guest>>,
    pub supervisor: Supervisor,
    pub address: Option<Address>,
    /// Limits that were requested and that this host cannot enforce. Only the bridge that started
    /// the sandbox knows them.
    pub warnings: Vec<String>,
    pub paused: AtomicBool,
    /// It is being frozen or thawed, or that was given up half-way.
    pub disturbed: AtomicBool,
}

impl Process {
    pub fn new(
        id: SandboxId,
        guest: Option<Guest>,
        supervisor: Supervisor,
        address: Option<Address>,
        warnings: Vec<String>,
    ) -> Self {
        let guest = Mutex::new(guest);
        let [paused, disturbed] = [(); 2].map(|()| AtomicBool::new(false));
        Self { id, guest, supervisor, address, warnings, paused, disturbed }
    }

    fn guest_slot(&self) -> MutexGuard<'_, Option<Guest>> {
        // Nothing in it is ever half-changed.
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_guest(&self) -> Option<Guest> {
        self.guest_slot().clone()
    }

    fn freezer(&self) -> Result<Freezer, MachineError> {
        find_freezer(&self.id, &self.supervisor).map_err(MachineError::Freeze)
    }

    async fn freeze(&self) -> Result<(), MachineError> {
        let freezer = self.freezer()?;
        self.disturbed.store(true, Ordering::Relaxed);
        let guest = self.known_guest();
        if let Some(guest) = &guest {
            guest.machine_paused();
        }
        let frozen = freezer.freeze().await;
        if frozen.is_err()
            && let Some(guest) = &guest
        {
            guest.machine_resumed(false);
        }
        self.paused.store(frozen.is_ok(), Ordering::Relaxed);
        self.disturbed.store(false, Ordering::Relaxed);
        frozen.map_err(MachineError::Freeze)
    }

    async fn thaw(&self) -> Result<Resumed, MachineError> {
        self.disturbed.store(true, Ordering::Relaxed);
        self.freezer()?.thaw().map_err(MachineError::Freeze)?;
        self.paused.store(false, Ordering::Relaxed);
        let mut answered = timeout(RESUME_PATIENCE, self.meet_again(false)).await;
        if !matches!(answered, Ok(Ok(()))) {
            // Either end may have taken the other's silence for a cut.
            answered = timeout(WAKE_DEADLINE, self.meet_again(true)).await;
        }
        let answered = answered.unwrap_or_else(|_| Err(silent()));
        self.disturbed.store(false, Ordering::Relaxed);
        // The clock is the host's, and needs no correction.
        answered.map(|()| Resumed::default())
    }

    /// Waits until its agent has answered something.
    async fn meet_again(&self, reconnects: bool) -> Result<(), MachineError> {
        let guest = match self.known_guest() {
            Some(guest) => {
                guest.machine_resumed(reconnects);
                guest
            }
            // Another bridge paused it; this one has no link to its agent yet.
            None => self.meet().await?,
        };
        let failed = |source: GuestError| MachineError::Guest { action: "wake the agent", source };
        guest.thaw().await.map(drop).map_err(failed)
    }

    async fn meet(&self) -> Result<Guest, MachineError> {
        let met = match self.address.clone() {
            Some(address) => self.supervisor.return_to(address, Timing::LOCAL).await,
            None => None,
        };
        let guest = met.ok_or_else(silent)?;
        *self.guest_slot() = Some(guest.clone());
        Ok(guest)
    }

    async fn thaw_if_frozen(&self) {
        if self.disturbed.load(Ordering::Relaxed) || self.paused.load(Ordering::Relaxed) {
            // A machine that does not go on is killed when it must end.
            let _ = timeout(SET_RIGHT_MAX, self.thaw()).await;
        }
    }
}

/// The freezer of a machine, by its first process.
pub(super) fn find_freezer(
    id: &SandboxId,
    supervisor: &Supervisor,
) -> Result<Freezer, FreezeError> {
    Freezer::find(id, init_of(supervisor).map(|first| first.pid))
}

/// The first process of a machine. Its supervisor may have another child that is about to end, which has made the users.
pub(super) fn init_of(supervisor: &Supervisor) -> Option<ProcessIdentity> {
    supervisor.children().into_iter().find(|child| is_init(child.pid))
}

/// Whether a process is the first of a namespace of processes.
fn is_init(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    pids.split_ascii_whitespace().skip(1).last() == Some("1")
}

fn silent() -> MachineError {
    MachineError::Silent { deadline: WAKE_DEADLINE, console: String::new() }
}

impl Running for Process {
    fn guest(&self) -> Option<Guest> {
        self.known_guest()
    }

    fn trace(&self) -> Trace {
        let process = Some(self.supervisor.identity().clone());
        let paused = self.paused.load(Ordering::Relaxed);
        Trace { process, address: self.address.clone(), paused }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn bind<'a>(&'a self, bind: &'a Bind) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(bind.make(&self.supervisor))
    }

    fn suspend(&self) -> Option<&dyn Suspend> {
        Some(self)
    }

    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !grace.is_zero() {
                self.thaw_if_frozen().await;
            }
            self.supervisor.stop(self.known_guest(), grace).await;
        })
    }

    fn kill(&self) {
        self.supervisor.kill();
    }

    fn was_killed(&self) -> bool {
        self.supervisor.was_killed()
    }

    fn exited(&self) -> BoxFuture<'static, MachineExit> {
        let supervisor = self.supervisor.clone();
        Box::pin(async move { supervisor.exited().await })
    }
}

impl Suspend for Process {
    fn may_pause(&self) -> Result<(), MachineError> {
        self.freezer().map(drop)
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), MachineError>> {
        Box::pin(self.freeze())
    }

    fn resume(&self) -> BoxFuture<'_, Result<Resumed, MachineError>> {
        Box::pin(self.thaw())
    }

    fn set_right(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.disturbed.load(Ordering::Relaxed) {
                let _ = self.thaw().await;
            }
        })
    }

    fn may_snapshot(&self) -> Result<(), MachineError> {
        Err(MachineError::lacks(MachineKind::Process, Capability::Snapshot, "be snapshotted"))
    }

    fn snapshot<'a>(&'a self, _: &'a std::path::Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async { self.may_snapshot() })
    }

    fn put_down<'a>(&'a self, _: &'a std::path::Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async { self.may_snapshot() })
    }
}
