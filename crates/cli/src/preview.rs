//! `preview`: make, list and take back links to ports of sandboxes.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::{failure, instant, output, table, values};
use access::preview::Link;
use control::{ClientError, PreviewLink, Request};
use sandbox::SandboxRef;

/// Make a link to a sandbox's port
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  host-bridge preview work 3000            print a link that is good for an hour
  host-bridge preview work 3000 --for 7d
  host-bridge preview ls work
  host-bridge preview rm work 3f2a90c1b7de

Who has the link reaches the port through the server of `host-bridge serve`, without a key, until the
link expires, is removed, or the sandbox is gone. It is shown once."
)]
pub struct Preview {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Option<SandboxRef>,

    /// The port in the sandbox
    #[arg(required = true, value_name = "PORT")]
    port: Option<NonZeroU16>,

    /// How long the link is good for; at most 30d [default: 1h]
    #[arg(long = "for", value_name = "DURATION", value_parser = values::parse_duration)]
    ttl: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List links
    Ls {
        /// The sandbox: NAME or NAMESPACE/NAME
        #[arg(value_name = "SANDBOX")]
        which: SandboxRef,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take links back
    Rm {
        /// The sandbox: NAME or NAMESPACE/NAME
        #[arg(value_name = "SANDBOX")]
        which: SandboxRef,

        /// The ids, as `host-bridge preview ls` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

impl Preview {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        match (&self.verb, &self.which, self.port) {
            (Some(Verb::Ls { which, json }), ..) => list(context, which, *json).await,
            (Some(Verb::Rm { which, ids }), ..) => remove(context, which, ids).await,
            (None, Some(which), Some(port)) => self.make(context, which, port).await,
            // The parser lets nothing else through.
            (None, ..) => Ok(Exit::FAILED_ITSELF),
        }
    }

    async fn make(&self, context: &Context, which: &SandboxRef, port: NonZeroU16) -> Result<Exit> {
        let ttl_ms = self.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let request = Request::CreatePreview { sandbox: which.clone(), port, ttl_ms };
        let made = match context.daemon().await?.ask::<PreviewLink>(&request).await {
            Ok(made) => made,
            Err(error) => return Err(context.explain(which, error).await),
        };
        if self.json {
            let mut shown = row_json(&made.link);
            shown["url"] = json!(made.url);
            shown["has_host_name"] = json!(made.has_host_name);
            output::print_json(&shown)?;
        } else {
            output::print_line(&made.url)?;
            if !made.has_host_name {
                output::note(
                    "this server has no host names for ports, so the link is for programs and not for \
                     browsers; see `url` of [previews] in its configuration",
                );
            }
        }
        Ok(Exit::SUCCESS)
    }
}

async fn list(context: &Context, which: &SandboxRef, json: bool) -> Result<Exit> {
    let request = Request::Previews { sandbox: which.clone() };
    let links = match context.daemon().await?.ask::<Vec<Link>>(&request).await {
        Ok(links) => links,
        Err(error) => return Err(context.explain(which, error).await),
    };
    if json {
        output::print_json(&links.iter().map(row_json).collect::<Vec<_>>())?;
    } else {
        let rows: Vec<_> = links.iter().map(row).collect();
        output::print(&table::align(["ID", "PORT", "CREATED", "EXPIRES", "KEY"], &rows))?;
    }
    Ok(Exit::SUCCESS)
}

fn row(link: &Link) -> [String; 5] {
    [
        output::printable(&link.id),
        link.port.to_string(),
        instant::format(link.made_at_ms),
        instant::format(link.expires_at_ms),
        key(link).unwrap_or_else(|| "-".to_owned()),
    ]
}

fn row_json(link: &Link) -> serde_json::Value {
    json!({
        "id": link.id,
        "port": link.port,
        "created_at": instant::format(link.made_at_ms),
        "expires_at": instant::format(link.expires_at_ms),
        "key": key(link),
    })
}

/// The id of the key that made it.
fn key(link: &Link) -> Option<String> {
    link.grant.as_ref()?.id.as_ref().map(ToString::to_string)
}

async fn remove(context: &Context, which: &SandboxRef, ids: &[String]) -> Result<Exit> {
    let mut daemon = context.daemon().await?;
    let mut exit = Exit::SUCCESS;
    for id in ids {
        let request = Request::RemovePreview { sandbox: which.clone(), id: id.clone() };
        match daemon.ask::<Link>(&request).await {
            Ok(removed) => output::print_line(&output::printable(&removed.id))?,
            // A refusal of one does not concern the next; a lost bridge does.
            Err(error @ ClientError::Refused(_)) => exit = failure::report(&error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}
