//! `caps`: show the usage and the caps of a namespace and a key.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::values::{human_bytes, human_cpus, human_duration};
use super::{output, table};
use control::{CapUsage, CapUsageRow, Request};
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
        let request = Request::Caps { namespace: self.namespace, key: self.key };
        let scopes: Vec<CapUsage> = context.daemon().await?.ask(&request).await?;
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
    let (cap, shown) = unit(&row.cap);
    let allowed = row.allowed.map_or_else(|| "-".to_owned(), shown);
    [scope, output::printable(&cap), shown(row.used), allowed]
}

/// Writes a number in its unit.
type Shown = fn(u64) -> String;

/// A cap without the unit in its name, and the format of its numbers.
fn unit(cap: &str) -> (String, Shown) {
    let units: [(&str, &str, Shown); 4] = [
        ("_ms_per_day", " per day", |ms| human_duration(Duration::from_millis(ms))),
        ("_bytes_per_day", " per day", human_bytes),
        ("_bytes", "", human_bytes),
        ("_mib", "", |mib| human_bytes(mib.saturating_mul(1024 * 1024))),
    ];
    for (end, instead, shown) in units {
        if let Some(name) = cap.strip_suffix(end) {
            return (format!("{name}{instead}"), shown);
        }
    }
    match cap.strip_suffix("_millis") {
        Some(_) => {
            ("cpus".to_owned(), |millis| human_cpus(u32::try_from(millis).unwrap_or(u32::MAX)))
        }
        None => (cap.to_owned(), |count| count.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_units_and_not_bytes() {
        let shown = |cap: &str, used| {
            let row = CapUsageRow { cap: cap.to_owned(), used, allowed: None };
            let [_, cap, used, _] = line("namespace a".to_owned(), &row);
            format!("{cap} {used}")
        };
        assert_eq!(shown("sandboxes", 2), "sandboxes 2");
        assert_eq!(shown("memory_mib", 512), "memory 512.0 MiB");
        assert_eq!(shown("cpu_millis", 1500), "cpus 1.5");
        assert_eq!(shown("output_bytes_per_day", 2048), "output per day 2.0 KiB");
    }
}
