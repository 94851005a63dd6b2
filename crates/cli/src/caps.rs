//! `caps`: show the usage and the caps of a namespace and a key.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::{output, table};
use control::CapUsageRow;
use sandbox::Name;

/// Show usage and caps of namespaces and keys
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge caps
  host-bridge caps --namespace ci --key 0123456789ab
  host-bridge caps --json | jq '.[].caps[] | select(.used == .allowed)'

Caps are set in [caps] of the configuration. `host-bridge keys ls` lists the ids of keys.")]
pub struct Caps {
    /// Set the namespace whose sandboxes are counted
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Name,

    /// Add what this key has in all namespaces; takes its id
    #[arg(long, value_name = "ID")]
    key: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Caps {
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let scopes = context.daemon().await?.caps(self.namespace, self.key).await?;
        if self.json {
            output::print_json(&scopes)?;
            return Ok(Exit::SUCCESS);
        }
        let rows = scopes.iter().flat_map(|one| {
            let scope = output::printable(&one.scope.to_string());
            one.caps.iter().map(move |row| line(scope.clone(), row))
        });
        output::print(&table::align(HEAD, &rows.collect::<Vec<_>>()))?;
        Ok(Exit::SUCCESS)
    }
}

const HEAD: [&str; 4] = ["OF", "CAP", "USED", "ALLOWED"];

fn line(scope: String, row: &CapUsageRow) -> [String; 4] {
    let allowed = row.allowed.map_or_else(|| "-".to_owned(), |allowed| allowed.to_string());
    [scope, row.cap.clone(), row.used.to_string(), allowed]
}
