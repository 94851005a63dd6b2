//! `store`: repair the file with the rows of notebooks, history and artifacts. Needs no daemon, and
//! none may run.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::output;
use host::lock::Locks;
use services::store::repair::{RepairedStore, repair};

/// Repair the store of notebooks, history and artifacts
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  host-bridge store repair                 keep what can be read
  host-bridge doctor                       shows whether the store is damaged"
)]
pub struct Store {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a new store from a damaged one
    #[command(after_help = "Examples:
  host-bridge store repair
  host-bridge store repair --json | jq .tables

The daemon must not run. The damaged file stays beside the new one, as burrow.db.damaged-TIME.
Sandboxes, their logs and the audit log are not in the store. A store that is not damaged stays as it is.")]
    Repair {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Store {
    pub fn run(&self, context: &Context) -> Result<Exit> {
        let Verb::Repair { json } = self.verb;
        context.paths.prepare()?;
        let _locks = Locks::take(&context.paths)?;
        let repaired = repair(&context.paths)?;
        if json {
            output::print_json(&shown(repaired.as_ref()))?;
        } else {
            output::print(&describe(repaired.as_ref()))?;
        }
        Ok(Exit::SUCCESS)
    }
}

fn shown(repaired: Option<&RepairedStore>) -> serde_json::Value {
    let Some(repaired) = repaired else { return json!({ "damaged": null, "tables": [] }) };
    let tables = repaired.tables.iter();
    let tables: Vec<_> = tables
        .map(|(table, copied, refused)| json!({ "table": table, "kept": copied, "refused": refused }))
        .collect();
    json!({ "damaged": repaired.damaged, "tables": tables })
}

fn describe(repaired: Option<&RepairedStore>) -> String {
    let Some(repaired) = repaired else { return "the store is not damaged\n".to_owned() };
    let tables: Vec<_> =
        repaired.tables.iter().map(|(table, copied, _)| format!("{copied} {table}")).collect();
    let damaged = output::printable(&repaired.damaged.display().to_string());
    let refused: u64 = repaired.tables.iter().map(|(_, _, refused)| refused).sum();
    let refused = match refused {
        0 => String::new(),
        rows => format!("; {rows} rows belong to lost notebooks"),
    };
    format!("kept {}{refused}\nthe damaged store is {damaged}\n", tables.join(", "))
}
