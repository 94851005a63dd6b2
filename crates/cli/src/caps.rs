//! `caps`: what a namespace and a key have, and what they may have.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::{output, table};
use control::CappedRow;
use sandbox::Name;

/// Show what a namespace and a key have, and what they may have
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge caps
  host-bridge caps --namespace ci --key 0123456789ab
  host-bridge caps --json | jq '.[].caps[] | select(.used == .allowed)'

Caps are set in the file of options, below [caps]. A key is named by its id: `host-bridge keys ls`.")]
pub struct Caps {
    /// Whose sandboxes are counted
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Name,

    /// The id of a key, for what it has in all namespaces
    #[arg(long, value_name = "ID")]
    key: Option<String>,

    /// As JSON
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

fn line(scope: String, row: &CappedRow) -> [String; 4] {
    let allowed = row.allowed.map_or_else(|| "-".to_owned(), |allowed| allowed.to_string());
    [scope, row.cap.clone(), row.used.to_string(), allowed]
}
