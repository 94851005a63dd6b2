//! A virtual machine that runs.

use std::fs;
use std::future::pending;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::plan::SHARED;
use super::programs::{BESIDE, SHARER, from_shell, has_machine, outlived};
use super::{MONITOR_LOG, Monitor, Tape};
use crate::limits::{CONSOLE_BYTES_MAX, KILL_DEADLINE, MONITOR_LOG_LOOK_PAUSE, SET_RIGHT_MAX};
use crate::process::cgroup;
use crate::supervisor::Supervisor;
use crate::{BoxFuture, Directories, MachineExit, Running, SandboxId, Suspend, Trace};
use agent_client::guest::Guest;
use agent_client::link::Address;

/// Where a machine is on this host.
pub struct At {
    /// Where its sockets are.
    pub directory: PathBuf,
    /// Where it keeps what outlives a bridge.
    pub directories: Option<Directories>,
    /// Control groups of this name hold the machine, and are removed with it: nothing else refers
    /// to them.
    pub held: Option<SandboxId>,
}

/// See the module's description.
pub struct Virtual {
    pub(super) monitor: Arc<dyn Monitor>,
    pub(super) directory: PathBuf,
    /// Absent as long as its agent has not answered this bridge.
    guest: Mutex<Option<Guest>>,
    pub(super) paused: AtomicBool,
    /// Something is being done with its time, or was given up half-way.
    pub(super) disturbed: AtomicBool,
    pub(super) supervisor: Supervisor,
    /// Dropped with a machine that must not outlive its bridge.
    pub(super) tie: Option<PipeWriter>,
    pub(super) address: Option<Address>,
    pub(super) warnings: Vec<String>,
    tape: Option<Tape>,
    /// Why the monitor says that the machine has ended.
    reason: watch::Receiver<Option<String>>,
}

/// How long after the machine's end the monitor may still report the reason.
const REASON_MAX: Duration = Duration::from_millis(100);

/// How long a monitor may take to close its log after it has disconnected from the daemon of a directory. It
/// does both at once; this is for the reader of the log.
const PARTING_MAX: Duration = Duration::from_millis(500);

impl Virtual {
    pub(super) fn new(
        monitor: Arc<dyn Monitor>,
        place: At,
        guest: Option<Guest>,
        supervisor: Supervisor,
        address: Option<Address>,
        tape: Tape,
        follow: Option<BoxFuture<'static, Option<String>>>,
    ) -> Self {
        let log = place.directories.map(|directories| directories.state.join(MONITOR_LOG));
        let is_shared = place.directory.join(SHARED).is_dir();
        let beside = one_ended(&supervisor, is_shared);
        let reason = watch_over(&supervisor, beside, follow, log, place.held);
        let (warnings, tape) = (Vec::new(), Some(tape));
        let [paused, disturbed] = [(); 2].map(|()| AtomicBool::new(false));
        Self {
            monitor,
            directory: place.directory,
            guest: Mutex::new(guest),
            paused,
            disturbed,
            supervisor,
            tie: None,
            address,
            warnings,
            tape,
            reason,
        }
    }

    pub(super) fn guest_slot(&self) -> MutexGuard<'_, Option<Guest>> {
        // Nothing in it is ever half-changed.
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known_guest(&self) -> Option<Guest> {
        self.guest_slot().clone()
    }

    async fn stop_in_order(&self, grace: Duration) {
        if !grace.is_zero() {
            // A machine that does not resume is killed.
            let _ = timeout(SET_RIGHT_MAX, self.resume_if_paused()).await;
        }
        self.supervisor.stop(self.known_guest(), grace).await;
    }
}

/// Watches a machine: learns from the monitor why it ends, and keeps the logs short. Ends a machine whose
/// relay is gone, because nobody could reach it any more, and one whose shared directory is gone, because its
/// programs would wait forever.
fn watch_over(
    supervisor: &Supervisor,
    beside: impl Future<Output = HelperEnd> + Send + 'static,
    follow: Option<BoxFuture<'static, Option<String>>>,
    log: Option<PathBuf>,
    held: Option<SandboxId>,
) -> watch::Receiver<Option<String>> {
    let (report, reason) = watch::channel(None);
    let supervisor = supervisor.clone();
    tokio::spawn(async move {
        let mut has_followed = follow.is_none();
        let mut followed = follow.unwrap_or_else(|| Box::pin(pending()));
        let mut beside = Box::pin(beside);
        let mut has_beside = true;
        let mut look = tokio::time::interval(MONITOR_LOG_LOOK_PAUSE);
        loop {
            tokio::select! {
                word = &mut followed, if !has_followed => {
                    has_followed = true;
                    report.send_replace(word);
                }
                // The shell ends it when the machine has ended, and then itself.
                (name, reason) = &mut beside, if has_beside => {
                    has_beside = false;
                    // The daemon ends itself when the machine disconnects from it, which is before
                    // the machine's end.
                    if name == SHARER {
                        if !has_followed && let Ok(word) = timeout(PARTING_MAX, &mut followed).await {
                            has_followed = true;
                            report.send_replace(word);
                        }
                        if has_followed && supervisor.exited_within(KILL_DEADLINE).await.is_some() {
                            break;
                        }
                    }
                    if !has_machine(&supervisor) {
                        continue;
                    }
                    report.send_replace(Some(reason.to_owned()));
                    supervisor.kill();
                    break;
                }
                _ = supervisor.exited() => break,
                _ = look.tick() => log.iter().for_each(|log| cut_short(log)),
            }
        }
        if !has_followed && let Ok(word @ Some(_)) = timeout(REASON_MAX, followed).await {
            report.send_if_modified(|known| {
                let is_first = known.is_none();
                *known = known.take().or(word);
                is_first
            });
        }
        drop(report);
        if let Some(id) = held {
            supervisor.exited().await;
            cgroup::remove(&id).await;
        }
    });
    reason
}

/// Which helper of a machine ended, and what that means for the machine.
type HelperEnd = (&'static str, &'static str);

/// Resolves when the first helper of the machine has ended. A machine without its relay does not come up; one
/// whose directory was never there does.
fn one_ended(
    supervisor: &Supervisor,
    is_shared: bool,
) -> impl Future<Output = HelperEnd> + Send + use<> {
    let [relay, sharer] = BESIDE.map(|(name, reason)| {
        let ended = outlived(supervisor.clone(), name, is_shared && name == SHARER);
        async move {
            ended.await;
            (name, reason)
        }
    });
    async move {
        tokio::select! {
            ended = relay => ended,
            ended = sharer => ended,
        }
    }
}

/// Empties a log that has grown too large. Its writers append, so they continue at its beginning.
fn cut_short(log: &Path) {
    if fs::metadata(log).is_ok_and(|found| found.len() > CONSOLE_BYTES_MAX)
        && let Ok(file) = fs::File::options().write(true).open(log)
    {
        // If it fails now, it succeeds the next time.
        let _ = file.set_len(0);
    }
}

impl Running for Virtual {
    fn guest(&self) -> Option<Guest> {
        self.known_guest()
    }

    fn suspend(&self) -> Option<&dyn Suspend> {
        self.monitor.halt().is_some().then_some(self as &dyn Suspend)
    }

    fn trace(&self) -> Trace {
        let process = Some(self.supervisor.identity().clone());
        let paused = self.paused.load(Ordering::Relaxed);
        Trace { process, address: self.address.clone(), paused }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_in_order(grace))
    }

    fn kill(&self) {
        self.supervisor.kill();
    }

    fn was_killed(&self) -> bool {
        self.supervisor.was_killed()
    }

    fn exited(&self) -> BoxFuture<'static, MachineExit> {
        let (supervisor, mut reason) = (self.supervisor.clone(), self.reason.clone());
        let tape = self.tape.clone();
        Box::pin(async move {
            let exit = supervisor.exited().await;
            let reason = timeout(REASON_MAX, reason.wait_for(Option::is_some)).await;
            let reason = reason.ok().and_then(Result::ok).and_then(|reason| reason.clone());
            let panic = match &tape {
                Some(tape) => last_panic(&tape.settled().await),
                None => None,
            };
            let is_known = BESIDE.iter().any(|(_, known)| Some(*known) == reason.as_deref());
            match (panic, exit) {
                (Some(panic), _) => MachineExit::Panicked { console: panic },
                // The exit code is known only to the parent, an earlier bridge; the reason is known here.
                (None, MachineExit::Gone) if is_known => {
                    MachineExit::Unreachable { reason: reason.unwrap_or_default() }
                }
                (None, MachineExit::Exited { code: 137 }) if reason.is_some() => {
                    MachineExit::Unreachable { reason: reason.unwrap_or_default() }
                }
                (None, MachineExit::Exited { code: 0 }) => MachineExit::PoweredOff { reason },
                (None, exit) => from_shell(exit),
            }
        })
    }
}

/// The last message of a kernel that panicked, if it did.
fn last_panic(console: &str) -> Option<String> {
    let at = console.rfind("Kernel panic - not syncing")?;
    console[at..].lines().next().map(str::to_owned)
}
