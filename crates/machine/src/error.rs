//! Why a machine did not start or did not do what was requested.

use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;

use super::process::freezer::FreezeError;
use super::vmm::{ApiError, KitError};
use super::{Capability, MachineExit, MachineKind, NoDisk, kvm};
use agent_client::guest::GuestError;
use agent_client::link::LinkError;
use host::units::human_bytes;

/// Why a machine did not start.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    AgentMissing(#[from] host::agent::AgentMissing),
    #[error(transparent)]
    HelperMissing(#[from] host::helper::HelperMissing),
    #[error("{root:?} cannot be the root of a sandbox: {reason}")]
    Root { root: PathBuf, reason: String },
    #[error("a writable layer of {bytes} bytes is below the smallest, {bytes_min}")]
    Scratch { bytes: u64, bytes_min: u64 },
    #[error("the writable layer cannot be on disk: {0}")]
    NoDisk(#[from] NoDisk),
    #[error(
        "the sandbox's description has {bytes} bytes, more than the {bytes_max} that a frame holds; shorten its environment"
    )]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("could not {action}: {source}")]
    Host { action: &'static str, source: std::io::Error },
    /// The agent said goodbye, with a reason.
    #[error("the sandbox could not be set up: {message}")]
    BootFailed { message: String },
    #[error("the agent ended before it answered ({exit}){}", show_console(console))]
    Died { exit: MachineExit, console: String },
    #[error("the agent did not answer within {} s{}", deadline.as_secs(), show_console(console))]
    Silent { deadline: Duration, console: String },
    #[error("could not speak to the agent: {source}{}", show_console(console))]
    Link { source: LinkError, console: String },
    #[error(
        "an external machine needs the address of its agent, like unix:/path, hybrid:/path:1024 or vsock:3:1024"
    )]
    NoAddress,
    #[error(transparent)]
    Kit(#[from] KitError),
    #[error("{name} is missing: {remedy}")]
    Program { name: &'static str, remedy: &'static str },
    #[error(
        "a virtual machine with {bytes} bytes of memory does not boot; give it at least {bytes_min}"
    )]
    Memory { bytes: u64, bytes_min: u64 },
    #[error(
        "a virtual machine with {} of memory does not fit this host, which has {}; ask for less, or use a larger host",
        human_bytes(*bytes), human_bytes(*host_bytes)
    )]
    MemoryBeyondHost { bytes: u64, host_bytes: u64 },
    #[error("a {kind} machine needs a hypervisor that runs guests, and {source}: {remedy}")]
    NoHypervisor { kind: MachineKind, source: kvm::NoKvm, remedy: &'static str },
    #[error("{variable} is {requested:?}, and the boards that there are are pc, q35 and microvm")]
    Board { variable: &'static str, requested: String },
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the machine's monitor failed: {reason}")]
    Monitor { reason: String },
    #[error("a {kind} machine cannot {what}: {reason}")]
    CannotSuspend { kind: MachineKind, what: &'static str, reason: &'static str },
    #[error("the sandbox cannot be paused or resumed: {0}")]
    Freeze(FreezeError),
    #[error("could not {action}: {source}")]
    Guest { action: &'static str, source: GuestError },
    #[error("the snapshot does not fit this host: its {what} is {snapshot}, and here it is {here}")]
    OtherMachine { what: String, snapshot: String, here: String },
    #[error("{path:?} is no whole snapshot: {reason}")]
    BrokenSnapshot { path: PathBuf, reason: String },
    #[error("a {kind} machine has no address of its own to choose; leave it out")]
    UselessAddress { kind: MachineKind },
    #[error("a {kind} machine mounts no directory of the host when it boots")]
    NoMounts { kind: MachineKind },
}

/// What is at fault when a machine fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The request is invalid.
    Request,
    RequestTooLarge,
    /// This host or this kind of machine cannot.
    Unsupported,
    Files,
    /// A guest that does not do its part.
    Guest,
    Start,
}

impl MachineError {
    /// Adds the last output of the machine's console.
    pub(super) fn with_console(mut self, words: &str) -> Self {
        if let Self::Died { console, .. }
        | Self::Silent { console, .. }
        | Self::Link { console, .. } = &mut self
        {
            words.clone_into(console);
        }
        self
    }

    /// A machine of this kind has no such capability; the reason is in its row.
    pub fn lacks(kind: MachineKind, capability: Capability, what: &'static str) -> Self {
        let reason = kind.lack(capability).map_or("it does not support it", |lack| lack.why);
        Self::CannotSuspend { kind, what, reason }
    }

    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Root { .. }
            | Self::Scratch { .. }
            | Self::Memory { .. }
            | Self::Kit(KitError::NoImage { .. })
            | Self::NoAddress
            | Self::Board { .. }
            | Self::UselessAddress { .. } => Blame::Request,
            Self::TooLarge { .. } => Blame::RequestTooLarge,
            Self::CannotSuspend { .. }
            | Self::Freeze(_)
            | Self::MemoryBeyondHost { .. }
            | Self::NoMounts { .. }
            | Self::OtherMachine { .. }
            | Self::AgentMissing(_)
            | Self::NoDisk(_)
            | Self::HelperMissing(_)
            | Self::Kit(KitError::NoKit(_) | KitError::Missing(_))
            | Self::Program { .. }
            | Self::NoHypervisor { .. } => Blame::Unsupported,
            Self::BrokenSnapshot { .. } => Blame::Files,
            Self::Guest { .. } => Blame::Guest,
            Self::Host { .. }
            | Self::BootFailed { .. }
            | Self::Died { .. }
            | Self::Monitor { .. }
            | Self::Silent { .. }
            | Self::Api(_)
            | Self::Link { .. } => Blame::Start,
        }
    }

    /// What to do about it, unless the message says so itself.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BootFailed { .. } => Some("`host-bridge doctor` says what this host can run"),
            Self::Died { .. } | Self::Silent { .. } | Self::Link { .. } => Some(NO_AGENT),
            Self::Host { source, .. } if source.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
                Some(NO_AGENT)
            }
            _ => None,
        }
    }
}

/// What to do about an agent that does not answer correctly.
const NO_AGENT: &str = "`host-bridge doctor` shows which program is taken for the guest-agent; is it one, of this release?";

fn show_console(console: &str) -> String {
    if console.is_empty() { String::new() } else { format!("; its log ends with:\n{console}") }
}
