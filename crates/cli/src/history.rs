//! `history`: show runs of notebooks, from the store on disk. Needs no daemon.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::failure::{self, CliError};
use super::values::{Since, human_duration};
use super::{instant, output, table};
use sandbox::SandboxRef;
use services::store::history::{RunFilter, RunRow, history};
use services::store::limits::HISTORY_PAGE_MAX;
use services::store::notebooks::notebook_names;
use services::store::read;

/// The maximum length of a run's code in a line.
const CODE_CHARS_MAX: usize = 60;

/// Show runs of notebooks, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge history
  host-bridge history analysis
  host-bridge history --failed --since 1h
  host-bridge history --json team/analysis | jq -r .code

Works without the daemon. Long code and output are cut.")]
pub struct History {
    /// Print at most this many runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..=HISTORY_PAGE_MAX))]
    limit: u64,

    /// Print only runs that failed
    #[arg(long)]
    failed: bool,

    /// Print only runs that began since this time: an age as in 10m, or a date
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// Print every run as a line of JSON, with its code and the start of its output
    #[arg(long)]
    json: bool,

    /// The notebook: NAME or NAMESPACE/NAME (default: all)
    #[arg(value_name = "NOTEBOOK")]
    which: Option<SandboxRef>,
}

impl History {
    pub fn run(&self, context: &Context) -> Result<Exit> {
        let now_ms = instant::now_ms();
        let filter = RunFilter {
            namespace: self.which.as_ref().map(|which| which.namespace.to_string()),
            notebook: self.which.as_ref().map(|which| which.name.to_string()),
            failed: self.failed,
            before: None,
            since_ms: self.since.map_or(0, |since| since.resolve(now_ms)),
            limit: self.limit,
        };
        if let Some(which) = &self.which {
            check_notebook(context, which)?;
        }
        let runs = read(&context.paths, |store| history(store, &filter))?.unwrap_or_default();
        if self.json {
            for run in &runs {
                output::print_line(&line(run).to_string())?;
            }
        } else {
            let rows: Vec<_> = runs.iter().map(|run| row(run, now_ms)).collect();
            output::print(&table::align(HEAD, &rows))?;
        }
        Ok(Exit::SUCCESS)
    }
}

/// Refuses a notebook that is not there. One without runs is, and its history is empty.
fn check_notebook(context: &Context, which: &SandboxRef) -> Result<()> {
    let namespace = which.namespace.as_str();
    let names = read(&context.paths, |store| notebook_names(store, namespace))?.unwrap_or_default();
    if names.iter().any(|name| name == which.name.as_str()) {
        return Ok(());
    }
    let similar = failure::similar(which.name.as_str(), names);
    Err(CliError::UnknownNotebook { name: which.clone(), similar }.into())
}

const HEAD: [&str; 7] = ["NOTEBOOK", "RUN", "AGE", "TOOK", "STATUS", "CACHED", "CODE"];

fn row(run: &RunRow, now_ms: u64) -> [String; 7] {
    let status = match &run.error_type {
        Some(kind) => format!("{}: {kind}", run.status),
        None => run.status.clone(),
    };
    let cached = match run.cache_hit {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    let first = run.code.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let is_cut = first.chars().count() > CODE_CHARS_MAX || run.code.trim().lines().nth(1).is_some();
    let mut code: String = first.chars().take(CODE_CHARS_MAX).collect();
    if is_cut {
        code.push('…');
    }
    [
        which(run),
        run.number.to_string(),
        human_duration(Duration::from_millis(now_ms.saturating_sub(run.started_ms))),
        human_duration(Duration::from_micros(run.duration_us)),
        output::printable(&status),
        cached.to_owned(),
        output::printable(&code),
    ]
}

fn which(run: &RunRow) -> String {
    if run.namespace == "default" {
        run.notebook.clone()
    } else {
        format!("{}/{}", run.namespace, run.notebook)
    }
}

/// The fields are those of the native API.
fn line(run: &RunRow) -> serde_json::Value {
    json!({
        "notebook": run.notebook, "namespace": run.namespace, "number": run.number,
        "started_at_ms": run.started_ms, "duration_us": run.duration_us, "status": run.status,
        "code": run.code, "code_bytes": run.code_bytes, "code_digest": run.code_digest,
        "cache_key": run.cache_key, "cache_hit": run.cache_hit, "error_type": run.error_type,
        "error": run.error_message, "stdout": run.stdout, "stdout_bytes": run.stdout_bytes,
        "stderr": run.stderr, "stderr_bytes": run.stderr_bytes, "artifacts": run.artifacts,
        "sandbox": run.sandbox, "by": run.by_whom,
    })
}
