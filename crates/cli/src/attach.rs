//! `attach`: connect the terminal to a running session, to a new shell or to an interpreter. With
//! an address of an agent it needs no daemon.

use std::io::{IsTerminal, stdin};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{ArgGroup, Args};
use protocol::requests::{
    GroupLimits, Origin, Program, Role, SpoolPolicy, SpoolSpec, Start, Stdio,
};
use protocol::{ContextName, ExitRecord, SessionId};

use super::context::{self, Context};
use super::exit::Exit;
use super::failure::CliError;
use super::output;
use super::prompt::{self, Prompt};
use super::repl::language::Language;
use super::session::screen::{self, Keyboard, SessionExit, ViewerOptions};
use super::session::{self, LOG_HOLDER, follow, pipes, terminal_size, terminal_variable};
use crate::terminal::Keys;
use agent_client::guest::{Guest, contexts};
use agent_client::link::Address;
use sandbox::SandboxRef;

/// How much earlier output is shown: a few screens.
const SCROLL_BACK_BYTES: u64 = 64 * 1024;

/// Attach the terminal to a session or shell
#[derive(Debug, Args)]
#[command(
    override_usage = "host-bridge attach [OPTIONS] SANDBOX\n       \
                      host-bridge attach [OPTIONS] --uds PATH\n       \
                      host-bridge attach [OPTIONS] --hybrid PATH\n       \
                      host-bridge attach [OPTIONS] --cid N",
    group(ArgGroup::new("door").required(true).args(["which", "uds", "hybrid", "cid"])),
    after_help = "Examples:
  host-bridge attach work                              a new login shell; it survives detaching
  host-bridge attach work --session build              a running session, by its id or a prefix
  host-bridge attach work --session build --read-only  watch only
  host-bridge attach --repl python work                a Python prompt; its state is kept
  host-bridge attach --uds /run/agent.sock             an agent on a Unix socket, without the daemon
  host-bridge attach --hybrid /srv/vm/v.sock --port 1024
  host-bridge attach --cid 3 --port 1024

While attached:
  ctrl-p ctrl-q    detach; the session keeps running
  ctrl-p ctrl-t    take the keyboard from its current holder
  all other keys go to the program, ctrl-c and ctrl-z included

Several people can watch one session; one of them types. The smallest window among those who may type
sets the size. --read-only does not affect the size, and ctrl-c detaches. The exit code is the
session's own if it ends while you are attached.

With --repl, ctrl-c interrupts the code (a second one forces it) and ctrl-d leaves; the interpreter
keeps its state. If the code calls exit(), the exit code is the one it gives."
)]
pub struct Attach {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: Option<SandboxRef>,

    /// Attach to this session (default: a new login shell)
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Open a prompt for this language, shared with programs that use the API
    #[arg(
        long,
        value_name = "LANGUAGE",
        conflicts_with_all = ["session", "read_only", "take", "detach_keys"]
    )]
    repl: Option<Language>,

    /// Set the context for --repl (default: the language's name)
    #[arg(long, value_name = "NAME", requires = "repl")]
    context: Option<ContextName>,

    /// Watch without typing
    #[arg(long, requires = "session")]
    read_only: bool,

    /// Take the keyboard from its current holder
    #[arg(long, conflicts_with = "read_only")]
    take: bool,

    /// Set the keys that detach; empty for none
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: Keys,

    /// Connect to an agent on this Unix socket
    #[arg(long, value_name = "PATH")]
    uds: Option<PathBuf>,

    /// Connect through the hybrid vsock socket of Firecracker, Cloud Hypervisor or vhost-user-vsock
    #[arg(long, value_name = "PATH", requires = "port")]
    hybrid: Option<PathBuf>,

    /// Connect to the virtual machine with this vsock CID
    #[arg(long, value_name = "N", requires = "port")]
    cid: Option<u32>,

    /// Set the agent's vsock port; required with --hybrid and --cid
    #[arg(long, value_name = "N", conflicts_with_all = ["which", "uds"])]
    port: Option<u32>,

    /// Set the user of the new shell: NAME, NAME:GROUP, UID or UID:GID (default: the sandbox's user)
    #[arg(short, long, value_name = "USER", conflicts_with = "session")]
    user: Option<String>,
}

impl Attach {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        if self.session.is_none() && self.repl.is_none() && !stdin().is_terminal() {
            return Err(CliError::NoTerminalForShell.into());
        }
        let guest = self.connect(context).await?;
        let exit = match (&self.session, &self.repl) {
            (Some(wanted), _) => self.to_session(&guest, context, wanted).await,
            (None, Some(language)) => self.to_interpreter(&guest, context, language).await,
            (None, None) => self.to_shell(&guest).await,
        };
        guest.close().await;
        exit
    }

    async fn connect(&self, context: &Context) -> Result<Guest> {
        let port = self.port.unwrap_or_default();
        let address = if let Some(path) = &self.uds {
            Address::Unix { path: path.clone() }
        } else if let Some(path) = &self.hybrid {
            Address::Hybrid { path: path.clone(), port }
        } else if let Some(cid) = self.cid {
            Address::Vsock { cid, port }
        } else {
            let which = self.which.as_ref().context("clap requires one of the addresses")?;
            return context.guest(which, "attach").await;
        };
        context::connect(address, "attach").await
    }

    async fn to_session(&self, guest: &Guest, context: &Context, wanted: &str) -> Result<Exit> {
        let list = guest.sessions(0).await?;
        let info = match (session::find(&list.sessions, wanted), &self.which) {
            (Err(unknown), Some(which)) => {
                return Err(session::why_not_there(&context.paths, which, unknown).await.into());
            }
            (found, _) => found?,
        };
        let command = output::printable(&info.command);
        if !info.terminal {
            let left = follow::follow(guest, &info.session, SCROLL_BACK_BYTES).await?;
            return Ok(self.leave(left, &info.session, &command));
        }
        let keyboard = if !stdin().is_terminal() {
            Keyboard::Never
        } else if self.read_only {
            Keyboard::Watch
        } else if self.take {
            Keyboard::Take
        } else {
            Keyboard::IfFree
        };
        let seat = ViewerOptions {
            session: info.session.clone(),
            origin: Origin::Tail { bytes: SCROLL_BACK_BYTES },
            role: Role::Observer {},
            keys: self.detach_keys.clone(),
            keyboard,
            sizes: matches!(keyboard, Keyboard::IfFree | Keyboard::Take),
        };
        let left = screen::run(guest, seat).await?;
        Ok(self.leave(left, &info.session, &command))
    }

    async fn to_interpreter(
        &self,
        guest: &Guest,
        context: &Context,
        language: &Language,
    ) -> Result<Exit> {
        let name = match &self.context {
            Some(name) => name.clone(),
            None => language.context()?,
        };
        let own_name = self.context.as_ref().map(|name| format!(" --context {name}"));
        let mut open = contexts::open(name, language.as_str());
        open.user.clone_from(&self.user);
        let prompt = Prompt {
            context: open,
            place: self.door(),
            way_back: Some(format!(
                "host-bridge attach --repl {}{} {}",
                language.as_str(),
                own_name.unwrap_or_default(),
                self.door()
            )),
        };
        prompt::hold(guest, &context.paths, prompt).await
    }

    async fn to_shell(&self, guest: &Guest) -> Result<Exit> {
        let session = session::draw_id()?;
        let start = self.shell(session.clone());
        guest.start(&start).await?;
        let seat = ViewerOptions {
            session: session.clone(),
            origin: Origin::Offset { offset: 0 },
            // A holder of this attachment's own: lossless while we are here, gone with us.
            role: Role::Holder { name: session::own_holder(&session) },
            keys: self.detach_keys.clone(),
            keyboard: Keyboard::Take,
            sizes: true,
        };
        let left = screen::run(guest, seat).await?;
        Ok(self.leave(left, &session, "the shell"))
    }

    fn shell(&self, session: SessionId) -> Start {
        let (name, value) = terminal_variable();
        // With a daemon its recorder holds the session. Without one, nobody reads after we leave,
        // and a shell must not block for that.
        let (holders, policy) = match self.which {
            Some(_) => (vec![LOG_HOLDER.to_owned()], SpoolPolicy::Block),
            None => (Vec::new(), SpoolPolicy::DropOldest),
        };
        Start {
            session,
            program: Program::LoginShell {},
            cwd: None,
            env: vec![(name.into(), value.into())],
            user: self.user.clone(),
            stdio: Stdio::Pty { size: terminal_size() },
            deadline_ms: None,
            spool: SpoolSpec { bytes: None, policy },
            holders,
            tied: false,
            limits: GroupLimits::default(),
        }
    }

    /// Prints the last message and returns the exit code.
    fn leave(&self, left: SessionExit, session: &SessionId, command: &str) -> Exit {
        match left {
            SessionExit::Exited(record) => Self::ended(&record, command),
            SessionExit::Detached => {
                output::note(&format!("detached; return with: {}", self.way_back(session)));
                Exit::SUCCESS
            }
            SessionExit::Signalled(signal) => {
                output::note(&format!("still running; return with: {}", self.way_back(session)));
                Exit::signalled(signal)
            }
            SessionExit::Unread => Exit::UNREAD,
        }
    }

    fn ended(record: &ExitRecord, command: &str) -> Exit {
        pipes::tell_end(record, command);
        Exit::of(record)
    }

    fn way_back(&self, session: &SessionId) -> String {
        format!("host-bridge attach {} --session {session}", self.door())
    }

    /// The arguments that name the same session.
    fn door(&self) -> String {
        if let Some(path) = &self.uds {
            format!("--uds {}", path.display())
        } else if let (Some(path), Some(port)) = (&self.hybrid, self.port) {
            format!("--hybrid {} --port {port}", path.display())
        } else if let (Some(cid), Some(port)) = (self.cid, self.port) {
            format!("--cid {cid} --port {port}")
        } else {
            self.which.as_ref().map(ToString::to_string).unwrap_or_default()
        }
    }
}
