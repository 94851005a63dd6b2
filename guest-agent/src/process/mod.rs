//! Starting programs, and ending them with all that they have started.
//!
//! `session` describes a program as a [`Command`]; `pid1::reaper` calls [`spawn`], because a child
//! must be registered before it can be reaped, and nobody else may. Looking up users, searching
//! `PATH` and making pipes happen here, before the clone; what happens after it is `sys::spawn`.
//! Nothing goes through a shell.

pub mod environment;
pub mod procfs;
mod stdio;
pub mod tree;
pub mod user;

#[cfg(test)]
pub mod tests;

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use nix::unistd::Pid;
use protocol::exit::{SpawnFailure, SpawnStage};
use protocol::fault::clip_to;
use protocol::limits::COMMAND_BYTES_MAX;
use protocol::{Fault, Text};

use crate::cgroup::SessionGroup;
use crate::sys;
use environment::Environment;
use stdio::Ends;
pub use stdio::{Stdio, StdioPlan, output_pipe};

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
    /// Where the program starts; `/` when absent.
    pub cwd: Option<Text>,
    /// `name`, `name:group`, `uid` or `uid:gid`; the agent's own when absent.
    pub user: Option<String>,
    pub stdio: StdioPlan,
    /// Becomes the program's descriptor 3: the control channel of a language driver.
    pub control: Option<OwnedFd>,
    pub group: Option<&'a SessionGroup>,
}

/// A program that runs, or has run already.
pub struct Child {
    pub pid: Pid,
    pub stdio: Stdio,
}

/// The soft limit of open files that programs start with. The kernel's 1024 is too few for test
/// runners and databases; the million that containers often get makes programs that close every
/// possible descriptor before they start another wait for seconds. Whoever needs more may raise it
/// up to the hard limit, which is left alone.
const OPEN_FILES_SOFT: u64 = 65_536;

/// Starts a program. It has executed when this returns, or the failure says which step did not
/// succeed; a child that failed is left to the reaper.
pub fn spawn(command: Command<'_>) -> Result<Child, SpawnFailure> {
    let invalid = |subject: &str| failure(SpawnStage::Exec, libc::EINVAL, subject);
    let program = command.argv.first().filter(|name| !name.is_empty());
    let program = program.cloned().ok_or_else(|| failure(SpawnStage::Exec, libc::ENOENT, ""))?;

    let user = user::resolve(command.user.as_deref()).map_err(|error| {
        failure(SpawnStage::User, error.errno(), command.user.as_deref().unwrap_or("the agent's"))
    })?;
    let environment = Environment::complete(command.env, &user, command.session);
    let name = program.to_string();
    let candidates = environment.candidates(&program).ok_or_else(|| invalid(&name))?;
    let arguments = c_strings(command.argv).map_err(|text| invalid(&text.to_string()))?;
    let variables = environment.into_c_strings().map_err(|text| invalid(&text.to_string()))?;
    let directory = command.cwd.unwrap_or_else(|| "/".into());
    let directory_name = directory.to_string();
    let directory_c = CString::new(directory.into_bytes())
        .map_err(|_| failure(SpawnStage::WorkingDirectory, libc::EINVAL, &directory_name))?;

    let subject = match command.stdio {
        StdioPlan::Pipes { .. } => "pipes",
        StdioPlan::Pty { .. } => "terminal",
    };
    let stdio_failed =
        |error: std::io::Error| failure(SpawnStage::Stdio, errno_of(&error), subject);
    let Ends { ours, theirs } = stdio::open(command.stdio).map_err(stdio_failed)?;
    let control = command.control.map(stdio::lift).transpose().map_err(stdio_failed)?;

    let plan = sys::spawn::Plan {
        candidates: &candidates,
        arguments: &arguments,
        environment: &variables,
        directory: &directory_c,
        identity: user.identity.as_ref(),
        stdio: theirs.each_ref().map(AsFd::as_fd),
        control: control.as_ref().map(AsFd::as_fd),
        terminal: matches!(command.stdio, StdioPlan::Pty { .. }),
        group: command.group.map(SessionGroup::directory),
        open_files_soft: OPEN_FILES_SOFT,
    };
    match sys::spawn::start(&plan) {
        Ok(pid) => Ok(Child { pid, stdio: ours }),
        Err(error) => Err(SpawnFailure {
            stage: error.stage,
            errno: error.errno,
            subject: clip_to(
                match error.stage {
                    SpawnStage::User | SpawnStage::Identity => command.user.unwrap_or_default(),
                    SpawnStage::Stdio => subject.to_owned(),
                    SpawnStage::Terminal => "session".to_owned(),
                    SpawnStage::Cgroup => {
                        command.group.map(|group| group.name().to_owned()).unwrap_or_default()
                    }
                    SpawnStage::WorkingDirectory => directory_name,
                    SpawnStage::Fork => name,
                    SpawnStage::Exec => explain_exec(name, error.errno, &candidates),
                },
                COMMAND_BYTES_MAX,
            ),
        }),
    }
}

/// The fault that answers the request whose program could not be started.
pub fn spawn_fault(failure: SpawnFailure) -> Fault {
    let why = nix::errno::Errno::from_raw(failure.errno).desc();
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

/// The kernel says "not found" of a script whose interpreter is missing too, which sends people
/// looking for a file that is there.
fn explain_exec(program: String, errno: i32, candidates: &[CString]) -> String {
    let exists = |path: &CString| {
        path.as_bytes().starts_with(b"/") && nix::sys::stat::stat(path.as_c_str()).is_ok()
    };
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
