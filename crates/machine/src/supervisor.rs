//! The supervisor: the one process of a sandbox that the bridge can see.
//!
//! It is the agent's `launch` before it enters the namespaces, or the parent of a virtual machine's
//! monitor and relay. It lives exactly as long as the
//! sandbox: it ends when the sandbox ends, and the kernel kills the sandbox when it is killed. It
//! is held by a pidfd, because a pid could be another process's by the time it is signalled.
//!
//! To kill a sandbox its *children* are killed: the supervisor then cleans up and ends. Only when
//! there are none, or that did not help, the supervisor itself is killed.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::limits::STOP_MARGIN_HOST;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::sync::watch;

use super::MachineExit;
use super::identity::{ProcessIdentity, parent_of};
use crate::limits::ADOPT_DEADLINE;
use crate::limits::{KILL_DEADLINE, STOP_GRACE_MAX};
use agent_client::guest::{Guest, GuestError};
use agent_client::link::{Address, Timing};

/// First its children are killed, then it itself.
const KILLS: u32 = 2;

/// The record of a supervisor on disk.
#[derive(Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    supervisor: ProcessIdentity,
    /// They outlive the supervisor if it is killed from outside, and are still a machine.
    #[serde(default)]
    children: Vec<ProcessIdentity>,
}

/// A handle on a supervisor. Clones are the same process; dropping all of them leaves it alone.
#[derive(Clone, Debug)]
pub struct Supervisor {
    identity: ProcessIdentity,
    descriptor: Arc<OwnedFd>,
    exit: watch::Receiver<Option<MachineExit>>,
    killed: Arc<AtomicBool>,
}

impl Supervisor {
    /// Takes charge of a child that was just spawned. A task of its own reaps it.
    pub fn of_child(mut child: Child) -> io::Result<Self> {
        // A child that was not reaped keeps its pid, so the pid cannot be another process's.
        let opened = identify(&child).and_then(|identity| Ok((identity, open_child(&child)?)));
        let (identity, descriptor) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // Nothing else would ever stop it.
                let _ = child.start_kill();
                return Err(error);
            }
        };
        let (report, exit) = watch::channel(None);
        tokio::spawn(async move {
            let ended = child.wait().await.map_or(MachineExit::Gone, from_status);
            report.send_replace(Some(ended));
        });
        Ok(Self::new(identity, descriptor, exit))
    }

    /// Finds the supervisor that an earlier bridge started; `None` if it has ended.
    pub fn find(identity: &ProcessIdentity) -> io::Result<Option<Self>> {
        let Some(descriptor) = identity.open()? else { return Ok(None) };
        let watched = watch(descriptor.try_clone()?)?;
        let (report, exit) = watch::channel(None);
        tokio::spawn(async move {
            // A pidfd is readable once its process has ended, and stays so.
            let _ = watched.readable().await;
            report.send_replace(Some(MachineExit::Gone));
        });
        Ok(Some(Self::new(identity.clone(), descriptor, exit)))
    }

    fn new(
        identity: ProcessIdentity,
        descriptor: OwnedFd,
        exit: watch::Receiver<Option<MachineExit>>,
    ) -> Self {
        Self { identity, descriptor: Arc::new(descriptor), exit, killed: Arc::default() }
    }

    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Kills the sandbox, the second time by the supervisor itself. That it is gone already is no
    /// fault.
    pub fn kill(&self) {
        let again = self.killed.swap(true, Ordering::Relaxed);
        let had_children = self.kill_children();
        if again || !had_children {
            let _ = pidfd_send_signal(self.descriptor.as_fd(), Signal::KILL);
        }
    }

    /// Whether the sandbox was killed from here.
    pub fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Kills the supervisor's children: the sandbox's init, or a virtual machine and its relay; false
    /// when none is found.
    fn kill_children(&self) -> bool {
        // All are opened before the first is killed: the first death may end the supervisor, and then the
        // others are no longer its children and cannot be found.
        let supervisor = self.identity.pid;
        let children = self.child_pids();
        let opened: Vec<_> =
            children.into_iter().filter_map(|child| open_child_of(supervisor, child)).collect();
        opened
            .iter()
            // All of them: `any` would end with the first.
            .filter(|child| pidfd_send_signal(child, Signal::KILL).is_ok())
            .count()
            > 0
    }

    /// The processes that it has started and that live.
    pub fn children(&self) -> Vec<ProcessIdentity> {
        let known = self.child_pids().into_iter();
        known.filter_map(|pid| ProcessIdentity::of(pid).ok()).collect()
    }

    fn child_pids(&self) -> Vec<u32> {
        let supervisor = self.identity.pid;
        // It has one thread.
        let path = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Notes the supervisor on disk, before anything can be lost: a later bridge finds it by this
    /// note.
    pub fn note(&self, path: &Path) -> io::Result<()> {
        let note = Note { supervisor: self.identity.clone(), children: self.children() };
        // Written atomically: nobody could find the machine by half a note.
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(&note)?)?;
        fs::rename(new, path)
    }

    /// Kills the noted supervisor and the children that were noted with it, if they live.
    pub async fn end_noted(path: &Path) {
        let noted = fs::read(path).ok().and_then(|note| serde_json::from_slice(&note).ok());
        let Some(Note { supervisor, children }) = noted else { return };
        for identity in [supervisor].into_iter().chain(children) {
            if let Ok(Some(process)) = Self::find(&identity) {
                process.stop(None, Duration::ZERO).await;
            }
        }
    }

    /// Kills at once what a note or a trace names, with what it has started, and waits until all of it has
    /// ended. For who cannot wait for a machine to end as it should.
    pub(crate) async fn end_at_once(notes: &[PathBuf], traced: Option<&ProcessIdentity>) {
        let mut identities: Vec<_> = traced.cloned().into_iter().collect();
        for note in notes {
            let noted = fs::read(note).ok().and_then(|note| serde_json::from_slice(&note).ok());
            let Some(Note { supervisor, children }) = noted else { continue };
            identities.push(supervisor);
            identities.extend(children);
        }
        let mut ending = Vec::new();
        for identity in identities {
            let Ok(Some(process)) = Self::find(&identity) else { continue };
            for child in process.children() {
                ending.extend(Self::find(&child).ok().flatten());
            }
            ending.push(process);
        }
        for process in &ending {
            let _ = pidfd_send_signal(process.descriptor.as_fd(), Signal::KILL);
        }
        for process in &ending {
            process.exited_within(KILL_DEADLINE).await;
        }
    }

    /// Dials the agent of a machine that an earlier bridge has started.
    pub async fn return_to(&self, address: Address, timing: Timing) -> Option<Guest> {
        let mut options = super::guest_options(Some(&address));
        options.timing = timing;
        options.connect_deadline = ADOPT_DEADLINE;
        tokio::select! {
            guest = Guest::connect(address, options) => guest.ok(),
            _ = self.exited() => None,
        }
    }

    /// Lets the agent stop the sandbox within `grace`, then kills what is left.
    pub async fn stop(&self, guest: Option<Guest>, grace: Duration) {
        let grace = grace.min(STOP_GRACE_MAX);
        if let Some(guest) = guest.filter(|_| !grace.is_zero()) {
            let stopping = async {
                // An agent that stops may cut the link before its answer is through.
                match guest.shutdown(Some(grace)).await {
                    Ok(()) | Err(GuestError::Link(_)) => drop(self.exited().await),
                    // It refuses to stop, so do not wait for it.
                    Err(_) => {}
                }
            };
            let _ = tokio::time::timeout(grace + STOP_MARGIN_HOST, stopping).await;
        }
        for _ in 0..KILLS {
            if self.exited_within(Duration::ZERO).await.is_some() {
                return;
            }
            self.kill();
            self.exited_within(KILL_DEADLINE / KILLS).await;
        }
    }

    /// Resolves when it has ended.
    pub async fn exited(&self) -> MachineExit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        match ended {
            Some(ended) => ended,
            // The watching task ends without a result only when the runtime does.
            None => std::future::pending().await,
        }
    }

    /// Like `exited`, with a deadline; `None` if it still lives then.
    pub async fn exited_within(&self, deadline: Duration) -> Option<MachineExit> {
        tokio::time::timeout(deadline, self.exited()).await.ok()
    }
}

/// Registers a pidfd with the event loop.
#[expect(
    deprecated,
    reason = "the replacement is unsafe for types that may change their descriptor; an OwnedFd never does"
)]
fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Opens a process that is a child of `parent` after it has been opened, and so is no other's.
fn open_child_of(parent: u32, child: u32) -> Option<OwnedFd> {
    let identity = ProcessIdentity::of(child).ok()?;
    let descriptor = identity.open().ok()??;
    (parent_of(child)? == parent).then_some(descriptor)
}

fn identify(child: &Child) -> io::Result<ProcessIdentity> {
    ProcessIdentity::of(child.id().ok_or(io::ErrorKind::NotFound)?)
}

fn open_child(child: &Child) -> io::Result<OwnedFd> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    Ok(pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?)
}

fn from_status(status: ExitStatus) -> MachineExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => MachineExit::Exited { code },
        (None, Some(signal)) => MachineExit::Signaled { signal },
        (None, None) => MachineExit::Gone,
    }
}

#[cfg(test)]
mod tests;
