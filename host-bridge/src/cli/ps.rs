//! `ps`: the boxes there are.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::values::human_duration;
use super::{instant, output, table};
use crate::control::List;
use crate::sandbox::{Name, Record};

/// List boxes
#[derive(Debug, Args)]
#[command(
    visible_alias = "ls",
    after_help = "Examples:
  host-bridge ps
  host-bridge ps -a                        those that are over, too
  host-bridge rm -f $(host-bridge ps -aq)
  host-bridge ps --json | jq -r '.[].name'"
)]
pub struct Ps {
    /// Also those that are over
    #[arg(short, long)]
    all: bool,

    /// Names only
    #[arg(short, long)]
    quiet: bool,

    /// Those of one namespace only
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<Name>,

    /// The whole records as JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

impl Ps {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let list = List { namespace: self.namespace.clone(), all: self.all };
        let mut records = context.daemon().await?.list(list).await?;
        records.sort_by_key(|record| (record.created_at_ms, record.which()));
        if self.json {
            output::print_json(&records)?;
        } else if self.quiet {
            for record in &records {
                output::print_line(&record.which().to_string())?;
            }
        } else {
            let now_ms = instant::now_ms();
            let rows: Vec<_> = records.iter().map(|record| row(record, now_ms)).collect();
            output::print(&table::align(["NAME", "MACHINE", "STATE", "AGE", "IMAGE"], &rows))?;
        }
        Ok(Exit::SUCCESS)
    }
}

fn row(record: &Record, now_ms: u64) -> [String; 5] {
    let age = Duration::from_millis(now_ms.saturating_sub(record.created_at_ms));
    [
        record.which().to_string(),
        record.machine.to_string(),
        output::printable(&record.state.to_string()),
        human_duration(age),
        record.image.clone().unwrap_or_else(|| "(the host's root)".to_owned()),
    ]
}
