//! Starting programs, and ending them with all that they have started.
//!
//! `session` and `repl` describe a program as a [`Command`] and [`prepare`] it; only `pid1::reaper` calls
//! [`Prepared::start`], because a child must be known before it can be reaped. Looking up users, searching
//! `PATH` and making pipes happen on the event loop; what may wait for a file system, on a thread;
//! `sys::spawn` does the rest. Nothing goes through a shell.

pub mod environment;
mod home;
pub mod procfs;
mod stdio;
pub mod tree;
pub mod user;

#[cfg(test)]
pub mod tests;

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::sys::resource::{Resource, getrlimit};
use protocol::exit::{SpawnFailure, SpawnStage};
use protocol::fault::clip_to;
use protocol::limits::COMMAND_BYTES_MAX;
use protocol::{Fault, Text};

use crate::cgroup::{Directory, SessionGroup};
use crate::sys::spawn::{Birth, Identity, Plan};
use crate::{lookup, sys};
use environment::Environment;
use stdio::{End, Ends};
pub use stdio::{Stdio, StdioPlan, output_pipe};
use user::UserError;

/// A program to start.
pub struct Command<'a> {
    /// The session's id, which every process of it carries in its environment as
    /// [`environment::SESSION_VARIABLE`].
    pub session: &'a str,
    /// The program, by path or by name, and its arguments.
    pub argv: Vec<Text>,
    /// The environment of the sandbox and of the start, merged. What a program expects to find and
    /// does not find in here is added: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`.
    pub env: Vec<(Text, Text)>,
    /// The working directory; `/` if absent.
    pub cwd: Option<Text>,
    /// `name`, `name:group`, `uid` or `uid:gid`; the agent's own when absent.
    pub user: Option<String>,
    pub stdio: StdioPlan,
    /// Becomes the program's descriptor 3: the control channel of a language driver.
    pub control: Option<OwnedFd>,
    pub group: Option<&'a SessionGroup>,
}

/// All that a start needs, to be carried out on a thread.
pub struct Prepared {
    program: String,
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// The home directory that the account names, where `environment` has none.
    home: Option<CString>,
    /// The user's own if absent.
    directory: Option<CString>,
    user: String,
    identity: Option<Identity>,
    theirs: [End; 3],
    control: Option<OwnedFd>,
    terminal: bool,
    group: Option<(Arc<Directory>, String)>,
}

/// The soft limit of open files that programs start with. The kernel's 1024 is too few for test
/// runners and databases; the million that containers often get makes programs that close every
/// possible descriptor before they start another wait for seconds. A program may raise it up to
/// the hard limit, which is left alone.
const OPEN_FILES_SOFT: u64 = 65_536;

/// The limits of open files of programs, soft and hard. The agent's own hard limit never changes.
static OPEN_FILES: OnceLock<[u64; 2]> = OnceLock::new();

fn open_files() -> [u64; 2] {
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(OPEN_FILES_SOFT, |(_, hard)| hard);
    [hard.min(OPEN_FILES_SOFT), hard]
}

/// Prepares a start, and opens the agent's ends of the program's descriptors.
pub fn prepare(command: Command<'_>) -> Result<(Prepared, Stdio), SpawnFailure> {
    let invalid = |subject: &str| failure(SpawnStage::Exec, libc::EINVAL, subject);
    let program = command.argv.first().filter(|name| !name.is_empty());
    let program = program.cloned().ok_or_else(|| failure(SpawnStage::Exec, libc::ENOENT, ""))?;

    let user = user::resolve(command.user.as_deref()).map_err(|error| {
        let named = command.user.as_deref().unwrap_or("the agent's");
        let subject = match &error {
            UserError::Unreadable { .. } => format!("{named} ({error})"),
            _ => named.to_owned(),
        };
        failure(SpawnStage::User, error.errno(), &subject)
    })?;
    let environment = Environment::complete(command.env, &user, command.session);
    let home = (!environment.has_home()).then(|| CString::new(user.home).unwrap_or_default());
    let name = program.to_string();
    let candidates = environment.candidates(&program).ok_or_else(|| invalid(&name))?;
    let arguments = c_strings(command.argv).map_err(|text| invalid(&text.to_string()))?;
    let variables = environment.into_c_strings().map_err(|text| invalid(&text.to_string()))?;
    let to_c_string = |directory: Text| {
        CString::new(directory.as_bytes()).map_err(|_| {
            failure(SpawnStage::WorkingDirectory, libc::EINVAL, &directory.to_string())
        })
    };
    let directory = command.cwd.map(to_c_string).transpose()?;

    let terminal = matches!(command.stdio, StdioPlan::Pty { .. });
    let stdio_failed = |error: std::io::Error| {
        failure(SpawnStage::Stdio, errno_of(&error), stdio_subject(terminal))
    };
    let Ends { ours, theirs } = stdio::open(command.stdio).map_err(stdio_failed)?;
    let control = command.control.map(stdio::lift).transpose().map_err(stdio_failed)?;
    let prepared = Prepared {
        program: name,
        candidates,
        arguments,
        environment: variables,
        home,
        directory,
        user: command.user.unwrap_or_default(),
        identity: user.identity,
        theirs,
        control,
        terminal,
        group: command.group.map(|group| (group.directory(), group.name().to_owned())),
    };
    Ok((prepared, ours))
}

fn stdio_subject(terminal: bool) -> &'static str {
    if terminal { "terminal" } else { "pipes" }
}

impl Prepared {
    /// Starts the program. It has executed when this returns, or the failure says which step did not
    /// succeed; a child that failed is left to the reaper. Blocks for as long as a file system takes.
    pub fn start(mut self, birth: &Birth) -> Result<(), SpawnFailure> {
        if let Some(home) = &self.home {
            self.environment.push(home::variable(home, self.identity.as_ref()));
        }
        let directory = self.directory.unwrap_or_else(|| home::of(self.identity.as_ref()));
        let plan = Plan {
            candidates: &self.candidates,
            arguments: &self.arguments,
            environment: &self.environment,
            directory: &directory,
            identity: self.identity.as_ref(),
            stdio: self.theirs.each_ref().map(AsFd::as_fd),
            control: self.control.as_ref().map(AsFd::as_fd),
            terminal: self.terminal,
            group: self.group.as_ref().map(|(directory, _)| directory.as_fd()),
            open_files: *OPEN_FILES.get_or_init(open_files),
        };
        sys::spawn::start(&plan, birth).map_err(|error| {
            let subject = match error.stage {
                SpawnStage::User | SpawnStage::Identity => self.user,
                SpawnStage::Stdio => stdio_subject(self.terminal).to_owned(),
                SpawnStage::Terminal => "session".to_owned(),
                SpawnStage::Cgroup => self.group.map(|(_, name)| name).unwrap_or_default(),
                SpawnStage::WorkingDirectory => Text::from(directory.into_bytes()).to_string(),
                SpawnStage::Fork => self.program,
                SpawnStage::Exec => explain_exec(self.program, error.errno, &self.candidates),
            };
            failure(error.stage, error.errno, &subject)
        })
    }
}

/// The fault that answers the request whose program could not be started.
pub fn spawn_fault(failure: SpawnFailure) -> Fault {
    let why = explain(failure.errno);
    let subject = &failure.subject;
    let message = match failure.stage {
        SpawnStage::User => format!("there is no user or group {subject:?}: {why}"),
        SpawnStage::WorkingDirectory => format!("cannot enter directory {subject:?}: {why}"),
        SpawnStage::Exec if failure.is_not_found() => format!("{subject}: command not found"),
        SpawnStage::Exec => format!("cannot execute {subject}: {why}"),
        SpawnStage::Identity => format!("cannot become user {subject:?}: {why}"),
        SpawnStage::Stdio | SpawnStage::Cgroup | SpawnStage::Fork | SpawnStage::Terminal => {
            format!("cannot start a process ({subject}): {why}")
        }
    };
    Fault::spawn(message, failure)
}

/// The reason for an error number that means something different for a start than in general.
fn explain(errno: i32) -> &'static str {
    match errno {
        libc::EXDEV => "it is on a kernel file system, such as /proc or /sys",
        libc::ELOOP => {
            "it leads through too many symlinks, or through a link of /proc to what a process has open"
        }
        other => nix::errno::Errno::from_raw(other).desc(),
    }
}

/// The kernel says "not found" of a script whose interpreter is missing too, which sends people
/// looking for a file that is there.
fn explain_exec(program: String, errno: i32, candidates: &[CString]) -> String {
    let exists =
        |path: &CString| path.as_bytes().starts_with(b"/") && lookup::exists(path.as_c_str());
    if errno == libc::ENOENT && candidates.iter().any(exists) {
        format!("{program} (the file exists; its interpreter or loader does not)")
    } else {
        program
    }
}

/// Fails with the first text that contains a zero byte.
fn c_strings(texts: Vec<Text>) -> Result<Vec<CString>, Text> {
    texts.into_iter().map(|text| CString::new(text.as_bytes()).map_err(|_| text)).collect()
}

fn failure(stage: SpawnStage, errno: i32, subject: &str) -> SpawnFailure {
    SpawnFailure { stage, errno, subject: clip_to(subject.to_owned(), COMMAND_BYTES_MAX) }
}

fn errno_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
