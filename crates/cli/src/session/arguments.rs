//! The options that describe a program to run, shared by `run` and `exec`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio, TerminalSize};
use protocol::{SessionId, Text};

use super::super::failure::CliError;
use super::super::values::{parse_duration, resolve_variable, resolve_variables};
use crate::terminal::Size;
use agent_client::guest::contexts::language;

/// The ending of a notebook's file.
const NOTEBOOK: &str = "ipynb";

/// What to run, and how.
#[derive(Clone, Debug, Args)]
pub struct ProcessArguments {
    /// Connect stdin to the program (default: no input)
    #[arg(short, long)]
    pub interactive: bool,

    /// Run the program on a terminal (with -i, connected to yours)
    #[arg(short, long)]
    pub tty: bool,

    /// Set an environment variable; NAME alone passes the current value; repeatable
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// Read environment variables from a file, one per line; repeatable
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,

    /// Set the working directory in the sandbox (default: the workspace, the image's, or /sandbox)
    #[arg(short = 'w', long, visible_alias = "workdir", value_name = "DIR")]
    pub cwd: Option<OsString>,

    /// Set the user: NAME, NAME:GROUP, UID or UID:GID (default: the sandbox's user)
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,

    /// Kill the program and its children after this time, as in 90s or 5m; exit with 124
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

impl ProcessArguments {
    /// The request to start `command`.
    pub fn start(&self, session: SessionId, command: &[OsString]) -> Result<Start> {
        check_notebook(command)?;
        let argv = command.iter().map(|argument| text(argument.clone())).collect();
        Ok(Start {
            session,
            program: Program::Argv { argv },
            cwd: self.cwd.clone().map(text),
            env: self.environment()?,
            user: self.user.clone(),
            stdio: self.stdio(),
            deadline_ms: self
                .timeout
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            spool: SpoolSpec::default(),
            holders: Vec::new(),
            tied: true,
            limits: GroupLimits::default(),
        })
    }

    fn stdio(&self) -> Stdio {
        if self.tty {
            Stdio::Pty { size: terminal_size() }
        } else {
            Stdio::Pipes { stdin: self.interactive }
        }
    }

    fn environment(&self) -> Result<Vec<(Text, Text)>> {
        let terminal = self.tty.then(terminal_variable);
        let own = read_environment(&self.env_file, &self.env)?;
        let variables = terminal.into_iter().chain(own);
        Ok(variables.map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The variables of `--env-file` and `--env`. Those of files come first, so that options on the command
/// line override them.
pub fn read_environment(files: &[PathBuf], given: &[String]) -> Result<Vec<(String, String)>> {
    let ours = |name: &str| std::env::var(name).ok();
    let mut variables = Vec::new();
    for path in files {
        let content = std::fs::read_to_string(path)
            .map_err(|source| CliError::Unreadable { path: path.clone(), source })?;
        variables.extend(resolve_variables(&path.display().to_string(), &content, ours)?);
    }
    for variable in given {
        variables.extend(resolve_variable(variable, ours)?);
    }
    Ok(variables)
}

/// Whether a program is an interpreter of the notebooks' language, of any version.
fn is_of_notebooks(program: &str) -> bool {
    let is_version = |c: char| c.is_ascii_digit() || c == '.';
    let found = language::called(program.trim_end_matches(is_version));
    found.is_some() && found == language::of_ending(NOTEBOOK)
}

/// Refuses a notebook as the program of an interpreter, which would read it as an expression.
fn check_notebook(command: &[OsString]) -> Result<(), CliError> {
    let [program, arguments @ ..] = command else { return Ok(()) };
    let is_notebook = |path: &OsString| {
        let ending = Path::new(path).extension();
        ending.is_some_and(|ending| ending.eq_ignore_ascii_case(NOTEBOOK))
    };
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let file = if is_notebook(program) {
        Some(program)
    } else if is_of_notebooks(&name) {
        // The word after an option, such as a module, belongs to that option.
        arguments.first().filter(|first| is_notebook(first))
    } else {
        None
    };
    let Some(file) = file else { return Ok(()) };
    let program = if file == program { "a shell" } else { &*name };
    let notebook = file.to_string_lossy().into_owned();
    Err(CliError::Notebook { program: program.to_owned(), notebook })
}

/// The TERM variable of the person's terminal, for the program.
pub fn terminal_variable() -> (String, String) {
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    ("TERM".to_owned(), term.unwrap_or_else(|| "xterm".to_owned()))
}

/// The size of a new terminal: that of ours, if we have one.
pub fn terminal_size() -> TerminalSize {
    let size = Size::read().unwrap_or(Size::DEFAULT);
    TerminalSize { rows: size.rows, columns: size.columns }
}

/// The program of a command, for messages.
pub fn program_name(command: &[OsString]) -> String {
    command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn text(argument: OsString) -> Text {
    argument.into_vec().into()
}
