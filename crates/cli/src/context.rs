//! What every verb shares: the paths, the connection to the daemon, and the connection to an agent.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::timeout;

use super::exit::Exit;
use super::failure::{self, CliError};
use super::{background, output, session};
use access::audit::Audit;
use agent_client::guest::{Guest, InputRule, Options, OutputRule};
use agent_client::link::Address;
use agent_client::link::limits::GONE_AFTER;
use control::message::Reply;
use control::{Client, ClientError, ErrorCode, InputRecord, List, Purpose, Request};
use host::paths::Paths;
use protocol::SessionId;
use sandbox::log::{InputLog, ProvenanceLog};
use sandbox::{Durability, OneShot, Record, SandboxError, SandboxRef, State, find_log};

/// Where the log of a sandbox is read.
pub enum LogPlace {
    /// From this directory of this host.
    Here(PathBuf),
    /// By the daemon, which asks the node that has the sandbox.
    Elsewhere(Box<Client>),
}

/// The paths of this process, and its permissions.
pub struct Context {
    pub paths: Paths,
    /// Whether the daemon is started where a verb needs it and none runs.
    may_start: bool,
    /// The sandbox whose agent was connected to last.
    entered: Mutex<Option<SandboxRef>>,
}

impl Context {
    pub fn from_environment(may_start: bool) -> Result<Self> {
        Ok(Self { paths: Paths::from_environment()?, may_start, entered: Mutex::default() })
    }

    /// Opens the audit log, for operations of this process.
    pub fn audit(&self) -> Result<Audit> {
        Ok(control::open_audit(&self.paths, |what| output::note(&output::printable(&what)))?)
    }

    /// Connects to the daemon, and starts it first if none runs.
    pub async fn daemon(&self) -> Result<Client> {
        if self.may_start { background::reach(&self.paths).await } else { self.running().await }
    }

    /// Connects to the daemon if one runs.
    pub async fn running(&self) -> Result<Client> {
        Ok(Client::connect(&self.paths).await?)
    }

    /// Connects to the agent of a running sandbox. `verb` is shown to other clients.
    pub async fn guest(&self, which: &SandboxRef, verb: &str) -> Result<Guest> {
        self.guest_for(which, Purpose { verb: verb.to_owned(), ..Purpose::default() }).await
    }

    /// The same for those who only look: a sandbox that is asleep is not woken, and refused.
    pub async fn look(&self, which: &SandboxRef, verb: &str) -> Result<Guest> {
        let verb = verb.to_owned();
        self.guest_for(which, Purpose { verb, looks: true, ..Purpose::default() }).await
    }

    /// The same for starting a program. The daemon records it, since it does not see requests to the agent.
    pub async fn guest_for(&self, which: &SandboxRef, purpose: Purpose) -> Result<Guest> {
        let verb = purpose.verb.clone();
        let mut daemon = self.daemon().await?;
        let dialled = match daemon.dial(which, purpose).await {
            Ok(dialled) => dialled,
            Err(error) => return Err(self.explain(which, error).await),
        };
        if let Some(ms) = dialled.woke_ms {
            output::note(&format!("{which} was asleep and woke in {ms} ms"));
        }
        *self.entered.lock().unwrap_or_else(PoisonError::into_inner) = Some(which.clone());
        let guest = connect(dialled.address, &verb).await;
        let guest = guest.with_context(|| format!("sandbox {which} does not answer"))?;
        match dialled.durability {
            Durability::Off => {}
            Durability::Async => guest.output_rules().set(OutputRule::Recorded),
            Durability::Sync => guest.output_rules().set(OutputRule::ElsewhereDurable),
        }
        match dialled.input {
            InputRecord::Nowhere => {}
            InputRecord::Log(log) => guest.input_rules().set(recorded_in(&log)),
            InputRecord::Elsewhere => guest.input_rules().set(InputRule::ElsewhereRecorded),
        }
        if let Some(log) = dialled.provenance {
            keep_provenance_in(&log, &guest);
        }
        let guest = guest.running_as(dialled.user.as_deref());
        Ok(guest.beginning_in(dialled.workdir.as_deref()))
    }

    /// Registers activity in a sandbox that only its agent sees, so that the sandbox does not expire as idle.
    /// It lasts until the result is dropped.
    pub async fn at_work(&self, which: &SandboxRef) -> Result<Client> {
        let mut daemon = self.daemon().await?;
        daemon.work(which).await?;
        Ok(daemon)
    }

    /// Sends a request for each sandbox, and prints the sandbox if it was carried out. A refusal for one
    /// does not stop the others.
    pub async fn for_each(
        &self,
        all: &[SandboxRef],
        request: impl Fn(SandboxRef) -> Request,
    ) -> Result<Exit> {
        let mut daemon = self.daemon().await?;
        let mut exit = Exit::SUCCESS;
        for which in all {
            match daemon.ask::<Record>(&request(which.clone())).await {
                Ok(_) => output::print_line(&which.to_string())?,
                Err(error) => exit = failure::report(&self.explain(which, error).await),
            }
        }
        Ok(exit)
    }

    /// Adds suggestions to the daemon's refusal of an unknown sandbox.
    pub async fn explain(&self, which: &SandboxRef, error: ClientError) -> anyhow::Error {
        let ClientError::Refused(refusal) = &error else { return error.into() };
        match refusal.code {
            ErrorCode::NotFound => self.unknown(which).await.into(),
            ErrorCode::NotRunning => match self.state(which).await {
                Some(state) => CliError::NotRunning { name: which.clone(), state }.into(),
                None => error.into(),
            },
            _ => error.into(),
        }
    }

    /// Adds the state of the sandbox to an error that its agent is gone: its record has it a moment later.
    pub async fn explain_lost(&self, error: anyhow::Error) -> anyhow::Error {
        let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(which) = entered.filter(|_| failure::is_lost(&error)) else { return error };
        let ended = async {
            let mut daemon = Client::connect(&self.paths).await?;
            daemon.ask::<Record>(&Request::Wait { sandbox: which.clone() }).await
        };
        match timeout(END_KNOWN_MAX, ended).await {
            Ok(Ok(record)) if record.state.is_over() => {
                let state = record.state.to_string();
                failure::because(&error, CliError::SandboxEnded { name: which, state })
            }
            _ => error,
        }
    }

    /// Where the log of a sandbox is read, which may have stopped; for one of this host no daemon is needed.
    pub async fn log_place(&self, which: &SandboxRef) -> Result<LogPlace> {
        match find_log(&self.paths, which) {
            Err(SandboxError::NotFound { which }) => match self.running().await {
                Ok(daemon) => Ok(LogPlace::Elsewhere(Box::new(daemon))),
                Err(_) => Err(self.unknown(&which).await.into()),
            },
            found => Ok(LogPlace::Here(found?)),
        }
    }

    /// Asks the daemon about a sandbox. A refusal says what is wrong with that.
    pub async fn ask<T: TryFrom<Reply, Error = Reply>>(
        &self,
        daemon: &mut Client,
        which: &SandboxRef,
        request: &Request,
    ) -> Result<T> {
        match daemon.ask(request).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(which, error).await),
        }
    }

    /// The session with this id or prefix in the log of a sandbox of another node.
    pub async fn session_elsewhere(
        &self,
        daemon: &mut Client,
        which: &SandboxRef,
        wanted: &str,
    ) -> Result<SessionId> {
        let request = Request::LogSessions { sandbox: which.clone() };
        let sessions: Vec<SessionId> = self.ask(daemon, which, &request).await?;
        Ok(session::find_by(&sessions, wanted, |session| session)?.clone())
    }

    /// The error for an unknown sandbox, with suggestions.
    pub async fn unknown(&self, which: &SandboxRef) -> CliError {
        let similar = failure::similar(&which.to_string(), self.names().await);
        CliError::UnknownSandbox { name: which.clone(), similar }
    }

    /// The names of all sandboxes, for a hint. Errors mean no hint.
    async fn names(&self) -> Vec<String> {
        let Ok(mut daemon) = self.running().await else { return Vec::new() };
        let all = daemon.list(List { all: true, ..List::default() }).await.unwrap_or_default();
        all.iter().map(|record| record.which().to_string()).collect()
    }

    async fn state(&self, which: &SandboxRef) -> Option<State> {
        Some(self.running().await.ok()?.inspect(which).await.ok()?.state)
    }
}

/// Records what this process types into a sandbox, beside what the bridge records.
fn recorded_in(log: &Path) -> InputRule {
    let log = InputLog::new(log);
    let is_reported = AtomicBool::new(false);
    InputRule::Recorded(Box::new(move |session, at_ms, bytes| {
        if let Err(error) = log.append(session, at_ms, bytes)
            && !is_reported.swap(true, Ordering::Relaxed)
        {
            output::note(&format!("what is typed is not recorded: {error}"));
        }
    }))
}

/// Records what this process puts into a sandbox and runs there, beside what the bridge records.
fn keep_provenance_in(log: &Path, guest: &Guest) {
    let log = ProvenanceLog::new(log);
    let is_reported = AtomicBool::new(false);
    guest.provenance().set(Box::new(move |what| {
        if let Err(error) = log.append(what)
            && !is_reported.swap(true, Ordering::Relaxed)
        {
            output::note(&format!("what is put in is not recorded: {error}"));
        }
    }));
}

/// How long an agent in a virtual machine keeps our streams after a cut, which a migration or a snapshot
/// causes, for seconds on a busy host. A Unix socket is only cut when either side ends, so there is nothing
/// to wait for: a person who is gone releases the keyboard, and what is tied to us ends.
const RESUME_WINDOW: Duration = Duration::from_secs(30);

/// How long to retry connecting to a virtual machine.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How long to wait for the record of a sandbox whose agent is gone, like the server.
const END_KNOWN_MAX: Duration = Duration::from_secs(2);

/// The error of a program in its own sandbox, with the sandbox's end if it is gone.
pub async fn explain_gone(one_shot: &OneShot, error: anyhow::Error) -> anyhow::Error {
    if !failure::is_lost(&error) {
        return error;
    }
    match timeout(END_KNOWN_MAX, one_shot.exited()).await {
        Ok(exit) => failure::because(&error, CliError::MachineEnded { exit: exit.to_string() }),
        Err(_) => error,
    }
}

/// Connects to an agent at any address.
pub async fn connect(address: Address, verb: &str) -> Result<Guest> {
    let mut options = Options::named(our_name(verb));
    options.resume_window = match address {
        Address::Unix { .. } => Duration::ZERO,
        Address::Hybrid { .. } | Address::Vsock { .. } | Address::Serial { .. } => RESUME_WINDOW,
    };
    // Coming back later would find nothing.
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
