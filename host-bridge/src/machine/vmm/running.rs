//! A virtual machine that runs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::limits::STOP_MARGIN_HOST;
use tokio::process::ChildStdin;
use tokio::sync::watch;

use super::programs::{RELAY, outlived};
use super::{Monitor, Tape};
use crate::guest::{Guest, GuestError};
use crate::limits::{KILL_DEADLINE, STOP_GRACE_MAX};
use crate::link::Address;
use crate::machine::process::supervisor::Supervisor;
use crate::machine::{BoxFuture, MachineExit, Running, Suspend, Trace};

/// See the module's description.
pub struct Virtual {
    pub(super) monitor: Arc<dyn Monitor>,
    /// Where its sockets are.
    pub(super) directory: PathBuf,
    /// Absent as long as its agent has not answered this bridge.
    guest: Mutex<Option<Guest>>,
    pub(super) paused: AtomicBool,
    pub(super) supervisor: Supervisor,
    /// Dropped with the machine of a bridge that shall not outlive it.
    pub(super) tie: Option<ChildStdin>,
    pub(super) address: Option<Address>,
    pub(super) warnings: Vec<String>,
    tape: Option<Tape>,
    /// Why the monitor says that the machine has ended.
    reason: watch::Receiver<Option<String>>,
}

/// How long the monitor's word for the end may come after it.
const REASON_MAX: Duration = Duration::from_millis(100);

impl Virtual {
    pub(super) fn new(
        monitor: Arc<dyn Monitor>,
        directory: PathBuf,
        guest: Option<Guest>,
        supervisor: Supervisor,
        address: Option<Address>,
        tape: Tape,
        follow: Option<BoxFuture<'static, Option<String>>>,
    ) -> Self {
        let reason = watch_over(&supervisor, follow);
        let (warnings, tape) = (Vec::new(), Some(tape));
        let (guest, paused) = (Mutex::new(guest), AtomicBool::new(false));
        Self {
            monitor,
            directory,
            guest,
            paused,
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
        let grace = grace.min(STOP_GRACE_MAX);
        if !grace.is_zero() {
            self.go_on_if_paused().await;
        }
        if let Some(guest) = self.known_guest().filter(|_| !grace.is_zero()) {
            let asked = async {
                // An agent that stops may cut the link before its answer is through.
                match guest.shutdown(Some(grace)).await {
                    Ok(()) | Err(GuestError::Link(_)) => drop(self.supervisor.exited().await),
                    // It refuses to stop: no need to wait for it.
                    Err(_) => {}
                }
            };
            let _ = tokio::time::timeout(grace + STOP_MARGIN_HOST, asked).await;
        }
        for _ in 0..KILLS {
            if self.supervisor.exited_within(Duration::ZERO).await.is_some() {
                return;
            }
            self.supervisor.kill();
            self.supervisor.exited_within(KILL_DEADLINE / KILLS).await;
        }
    }
}

/// Learns from the monitor why the machine ends, and ends one whose relay is gone: nobody could
/// reach it any more.
fn watch_over(
    supervisor: &Supervisor,
    follow: Option<BoxFuture<'static, Option<String>>>,
) -> watch::Receiver<Option<String>> {
    let (told, reason) = watch::channel(None);
    let supervisor = supervisor.clone();
    tokio::spawn(async move {
        let follow = async {
            match follow {
                Some(follow) => follow.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            word = follow => drop(told.send_replace(word)),
            () = outlived(supervisor.clone(), RELAY) => {
                told.send_replace(Some("the relay of its vsock has ended".to_owned()));
                supervisor.kill();
            }
            _ = supervisor.exited() => {}
        }
    });
    reason
}

/// First the machine is killed, then its supervisor.
const KILLS: u32 = 2;

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
            let told = tokio::time::timeout(REASON_MAX, reason.wait_for(Option::is_some)).await;
            let told = told.ok().and_then(Result::ok).and_then(|reason| reason.clone());
            let panic = match &tape {
                Some(tape) => last_panic(&tape.settled().await),
                None => None,
            };
            match (panic, exit) {
                (Some(panic), _) => MachineExit::Panicked { console: panic },
                (None, MachineExit::Exited { code: 137 }) if told.is_some() => {
                    MachineExit::Unreachable { reason: told.unwrap_or_default() }
                }
                (None, MachineExit::Exited { code: 0 }) => MachineExit::PoweredOff { reason: told },
                // The shell says so of a child that a signal has ended.
                (None, MachineExit::Exited { code: code @ 129..=192 }) => {
                    MachineExit::Signaled { signal: code - 128 }
                }
                (None, exit) => exit,
            }
        })
    }
}

/// The words with which a kernel dies, if these are such.
fn last_panic(console: &str) -> Option<String> {
    let at = console.rfind("Kernel panic - not syncing")?;
    console[at..].lines().next().map(str::to_owned)
}
