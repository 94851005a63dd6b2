//! What every verb shares: the paths, the connection to the daemon, and the connection to an agent.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::failure::{self, CliError};
use super::output;
use access::audit::Audit;
use agent_client::guest::{Guest, Options};
use agent_client::link::Address;
use agent_client::link::limits::GONE_AFTER;
use control::{Client, ClientError, Code, List, Purpose};
use host::paths::Paths;
use sandbox::SandboxRef;

/// The paths of this process.
pub struct Context {
    pub paths: Paths,
}

impl Context {
    pub fn from_environment() -> Result<Self> {
        Ok(Self { paths: Paths::from_environment()? })
    }

    /// Opens the audit log, for operations of this process.
    pub fn audit(&self) -> Result<Audit> {
        Ok(control::open_audit(&self.paths, |what| output::note(&output::printable(&what)))?)
    }

    /// Connects to the daemon.
    pub async fn daemon(&self) -> Result<Client> {
        Ok(Client::connect(&self.paths).await?)
    }

    /// Connects to the agent of a running sandbox. `verb` is shown to other clients.
    pub async fn guest(&self, which: &SandboxRef, verb: &str) -> Result<Guest> {
        self.guest_for(which, Purpose { verb: verb.to_owned(), ..Purpose::default() }).await
    }

    /// The same for starting a program. The daemon records it, since it does not see requests to the agent.
    pub async fn guest_for(&self, which: &SandboxRef, purpose: Purpose) -> Result<Guest> {
        let verb = purpose.verb.clone();
        let mut daemon = self.daemon().await?;
        let dialled = match daemon.dial(which, purpose).await {
            Ok(dialled) => dialled,
            Err(error) => return Err(self.explain(which, error).await),
        };
        let guest = connect(dialled.address, &verb).await;
        let guest = guest.with_context(|| format!("sandbox {which} does not answer"))?;
        let guest = guest.running_as(dialled.user.as_deref());
        Ok(guest.beginning_in(dialled.workdir.as_deref()))
    }

    /// Says that somebody is at work in a sandbox whose agent alone sees it, so that the sandbox does not
    /// expire for being left alone. It holds until the result is dropped.
    pub async fn at_work(&self, which: &SandboxRef) -> Result<Client> {
        let mut daemon = self.daemon().await?;
        daemon.work(which).await?;
        Ok(daemon)
    }

    /// Adds suggestions to the daemon's refusal of an unknown sandbox.
    pub async fn explain(&self, which: &SandboxRef, error: ClientError) -> anyhow::Error {
        let ClientError::Refused(refusal) = &error else { return error.into() };
        match refusal.code {
            Code::NotFound => self.unknown(which).await.into(),
            Code::NotRunning => match self.state(which).await {
                Some(state) => CliError::NotRunning { name: which.clone(), state }.into(),
                None => error.into(),
            },
            _ => error.into(),
        }
    }

    /// The error for an unknown sandbox, with suggestions.
    pub async fn unknown(&self, which: &SandboxRef) -> CliError {
        let similar = failure::similar(&which.to_string(), self.names().await);
        CliError::UnknownSandbox { name: which.clone(), similar }
    }

    /// The names of all sandboxes, for a hint. Errors mean no hint.
    async fn names(&self) -> Vec<String> {
        let Ok(mut daemon) = self.daemon().await else { return Vec::new() };
        let all = daemon.list(List { all: true, ..List::default() }).await.unwrap_or_default();
        all.iter().map(|record| record.which().to_string()).collect()
    }

    async fn state(&self, which: &SandboxRef) -> Option<String> {
        let record = self.daemon().await.ok()?.inspect(which).await.ok()?;
        Some(record.state.to_string())
    }
}

/// How long an agent in a virtual machine keeps what is ours after a cut, such as a migration or a
/// snapshot makes, seconds on a busy host. A Unix socket is cut by the end of either side alone, so there is nothing to
/// wait for: a person who is gone leaves the keyboard, and what is tied to us ends.
const RESUME_WINDOW: Duration = Duration::from_secs(30);

/// How long to retry connecting to a virtual machine.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Connects to an agent at any address.
pub async fn connect(address: Address, verb: &str) -> Result<Guest> {
    let mut options = Options::named(our_name(verb));
    options.resume_window = match address {
        Address::Unix { .. } => Duration::ZERO,
        Address::Hybrid { .. } | Address::Vsock { .. } | Address::Serial { .. } => RESUME_WINDOW,
    };
    // To come back later than that is to come back to nothing.
    options.dial_deadline = options.resume_window;
    // A machine that has just gone on after a pause or a snapshot has its vsock back in a moment.
    if matches!(address, Address::Hybrid { .. }) {
        options.connect_deadline = CONNECT_MAX;
        options.absence_max = GONE_AFTER;
    }
    Ok(Guest::connect(address, options).await?)
}

/// The client name that others see when we have the keyboard.
pub fn our_name(verb: &str) -> String {
    let uid = nix::unistd::Uid::current();
    let user = nix::unistd::User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| format!("uid {uid}"), |user| user.name);
    let pid = std::process::id();
    format!("burrow {} {verb} of {user}, process {pid}", env!("CARGO_PKG_VERSION"))
}
