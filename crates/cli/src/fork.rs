//! `fork`: make copies of a running sandbox.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output::{self, printable};
use super::values::human_bytes;
use control::Request;
use sandbox::fork::ForkReport;
use sandbox::{Forked, Name, SandboxRef};

/// Make copies of a running sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge fork work
  host-bridge fork work attempt --json
  host-bridge fork work --count 3

The names of the copies go to stdout, and what of the sandbox they have and have not to stderr. A machine of
qemu is copied with its memory. A copy of a process sandbox has its files and the variables of its notebooks;
nothing runs in it. Copies are made all or none.")]
pub struct Fork {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,
    /// Name the copies, in the namespace of the sandbox (default: SANDBOX-1 and so on)
    #[arg(value_name = "NAME")]
    names: Vec<Name>,
    /// Make this number of copies (default: 1)
    #[arg(long, value_name = "NUMBER", conflicts_with = "names")]
    count: Option<usize>,
    /// Print the records and the report as JSON
    #[arg(long)]
    json: bool,
}

impl Fork {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let (sandbox, names) = (self.which.clone(), self.names.clone());
        let request =
            Request::Fork { sandbox, count: self.count.unwrap_or(1), names, is_trial: false };
        let forked: Forked = match context.daemon().await?.ask(&request).await {
            Ok(forked) => forked,
            Err(error) => return Err(context.explain(&self.which, error).await),
        };
        if self.json {
            output::print_json(&forked)?;
            return Ok(Exit::SUCCESS);
        }
        for fork in &forked.forks {
            output::print_line(&fork.which().to_string())?;
        }
        for line in described(&forked.report) {
            output::note(&printable(&line));
        }
        Ok(Exit::SUCCESS)
    }
}

/// What the copies have and have not, for people.
pub fn described(report: &ForkReport) -> Vec<String> {
    let mut lines = Vec::new();
    if report.memory {
        lines.push("carried: its memory and its disk, with everything that runs in it".to_owned());
    } else {
        let (entries, bytes) = (report.entries, human_bytes(report.bytes));
        lines.push(format!("carried: {entries} files and directories with {bytes}"));
    }
    for one in &report.notebooks {
        lines.push(format!(
            "carried: the notebook {} as {}, in {}",
            one.from, one.notebook, one.sandbox
        ));
    }
    if !report.frozen {
        lines.push(
            "its programs ran while the files were read: nothing can be frozen here".to_owned(),
        );
    }
    let left = &report.left;
    lines.extend(left.contexts.iter().map(|name| format!("not carried: the context {name}")));
    lines.extend(left.sessions.iter().map(|one| format!("not carried: the session {one}")));
    if let Some(workspace) = &left.workspace {
        lines.push(format!(
            "not carried: the workspace {workspace}; changes in the copies stay there"
        ));
    }
    lines
}
