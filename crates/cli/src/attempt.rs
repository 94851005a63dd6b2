//! `try`: run a command in a fork, and show which files it has changed.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::command_line;
use super::context::Context;
use super::exec::{Exec, SandboxCommand};
use super::exit::Exit;
use super::output::{self, printable};
use super::session::{self, ProcessArguments};
use control::Request;
use sandbox::{Changes, Forked, Record, SandboxRef};

/// Try a command in a fork
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge try work -- sh -c 'echo 1 > /tmp/one'
  host-bridge try --keep work -- touch /tmp/new

The sandbox itself stays as it is. After the output of the command, stdout has a line for each file and
directory that differs from what the fork began with: A for one that was added, M for one that was modified, D for
one that was deleted. The fork is then removed, unless --keep is given; its name then goes to stderr. The exit code is
that of the command. Forks of process sandboxes can tell what has changed, others cannot.")]
pub struct Try {
    #[command(flatten)]
    process: ProcessArguments,

    /// Keep the fork
    #[arg(long)]
    keep: bool,

    /// Print the changes as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    words: SandboxCommand,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Outcome {
    /// The fork; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    fork: Option<String>,
    #[serde(flatten)]
    changes: Changes,
}

impl Try {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        // Before a fork is made for it.
        command_line::check_command("try", &self.words.command)?;
        session::check_terminal(&self.process)?;
        let (sandbox, names) = (self.words.which.clone(), Vec::new());
        let request = Request::Fork { sandbox, count: 1, names, is_trial: true };
        let forked: Forked = match context.daemon().await?.ask(&request).await {
            Ok(forked) => forked,
            Err(error) => return Err(context.explain(&self.words.which, error).await),
        };
        let Some(fork) = forked.forks.first().map(Record::which) else {
            anyhow::bail!("the daemon made no fork");
        };
        let done = self.run_in(context, &fork).await;
        if self.keep {
            output::note(&format!("kept {fork}"));
        } else {
            let request = Request::Remove { sandbox: fork, force: true, moves: false };
            context.daemon().await?.ask::<Record>(&request).await?;
        }
        done
    }

    async fn run_in(&self, context: &Context, fork: &SandboxRef) -> Result<Exit> {
        let words = SandboxCommand { which: fork.clone(), ..self.words.clone() };
        let exec = Exec::attached(self.process.clone(), words);
        let exit = exec.run(context).await?;
        let request = Request::Changes { sandbox: fork.clone() };
        let changes: Changes = match context.daemon().await?.ask(&request).await {
            Ok(changes) => changes,
            Err(error) => return Err(context.explain(fork, error).await),
        };
        if self.json {
            let fork = self.keep.then(|| fork.to_string());
            output::print_json(&Outcome { fork, changes })?;
            return Ok(exit);
        }
        let lines = changes
            .changes
            .iter()
            .map(|one| format!("{} {}\n", one.change.letter(), printable(&one.path)));
        output::print(&lines.collect::<String>())?;
        if changes.more > 0 {
            output::note(&format!("{} more files have changed", changes.more));
        }
        Ok(exit)
    }
}
