//! `image ls`: list local images.

use anyhow::Result;
use clap::Args;

use super::short;
use crate::exit::Exit;
use crate::values::human_bytes;
use crate::{instant, output, table};
use image::Images;
use image::reference::Reference;

/// List local images, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge image ls
  host-bridge image ls -a                  steps of builds too
  host-bridge image ls --json | jq -r '.[].digest'")]
pub struct Ls {
    /// Show images without a name too, such as steps of builds; --json always does
    #[arg(short, long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub fn run(&self, images: &Images) -> Result<Exit> {
        let listed = images.list()?;
        if self.json {
            output::print_json(&listed)?;
            return Ok(Exit::SUCCESS);
        }
        let mut rows = Vec::new();
        for one in &listed {
            let row = |name: String, at_ms| {
                let size = human_bytes(one.image.size_bytes);
                [name, short(&one.image.digest), size, instant::format(at_ms)]
            };
            if one.names.is_empty() && self.all {
                rows.push(row("-".to_owned(), one.image.added_at_ms));
            }
            rows.extend(one.names.iter().map(|named| {
                let short = named.name.parse().map(|name: Reference| name.short());
                row(short.unwrap_or_else(|_| output::printable(&named.name)), named.at_ms)
            }));
        }
        output::print(&table::align(["NAME", "DIGEST", "SIZE", "ADDED"], &rows))?;
        Ok(Exit::SUCCESS)
    }
}
