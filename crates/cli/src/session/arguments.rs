//! The options that describe a program to run, shared by `run` and `exec`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio, TerminalSize};
use protocol::{SessionId, Text};

use super::super::failure::CliError;
use super::super::values::{parse_duration, resolve_variable, resolve_variables};
use crate::terminal::Size;

/// What to run, and how.
#[derive(Debug, Args)]
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

    /// Set the working directory in the sandbox (default: the image's)
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

    /// Variables of files come first, so that options on the command line override them.
    fn environment(&self) -> Result<Vec<(Text, Text)>> {
        let ours = |name: &str| std::env::var(name).ok();
        let mut variables = Vec::new();
        if self.tty {
            variables.push(terminal_variable());
        }
        for path in &self.env_file {
            let content = std::fs::read_to_string(path)
                .map_err(|source| CliError::Unreadable { path: path.clone(), source })?;
            variables.extend(resolve_variables(&path.display().to_string(), &content, ours)?);
        }
        for variable in &self.env {
            variables.extend(resolve_variable(variable, ours)?);
        }
        Ok(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
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
