//! `keys`: list, revoke and rotate API keys. Needs no daemon; a running one applies the change
//! within a second.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::{failure, instant, output, table};
use access::audit::{Entry, Outcome};
use access::keys::{self, Issued, KeyId, Rotation, SshKey, Standing, Store};

/// List, revoke and rotate API keys
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  host-bridge keys ls
  host-bridge keys revoke 1f0c8a2b77de
  host-bridge keys rotate                  sign new keys with a new secret; old keys stay valid
  host-bridge keys rotate --finish         invalidate the old keys

`host-bridge keygen` creates a key. A running daemon needs no restart."
)]
pub struct Keys {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List keys
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  host-bridge keys ls
  host-bridge keys ls --all                include expired and revoked keys
  host-bridge keys ls --json | jq -r '.[] | select(.name == \"ci\") | .id'"
    )]
    Ls {
        /// Include expired and revoked keys
        #[arg(short, long)]
        all: bool,

        /// Print ids only
        #[arg(short, long)]
        quiet: bool,

        /// Print JSON
        #[arg(long, conflicts_with = "quiet")]
        json: bool,
    },
    /// Revoke keys
    #[command(after_help = "Examples:
  host-bridge keys revoke 1f0c8a2b77de
  host-bridge keys revoke $(host-bridge keys ls -q)

Keys that the holders of these have issued over HTTP are revoked with them.")]
    Revoke {
        /// The ids, as `host-bridge keys ls` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<KeyId>,
    },
    /// Let an SSH key do the same
    #[command(after_help = "Examples:
  host-bridge keys add-ssh 1f0c8a2b77de ~/.ssh/id_ed25519.pub

The file has public keys as OpenSSH writes them, one a line. They log in at the door that
`host-bridge serve --ssh` opens, with what the key allows, and end with it.")]
    AddSsh {
        /// The id, as `host-bridge keys ls` shows it
        #[arg(value_name = "ID")]
        id: KeyId,

        /// The file of public keys
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove the SSH keys of a key
    #[command(after_help = "Examples:
  host-bridge keys rm-ssh 1f0c8a2b77de")]
    RmSsh {
        /// The id, as `host-bridge keys ls` shows it
        #[arg(value_name = "ID")]
        id: KeyId,
    },
    /// Replace the secret that signs keys
    #[command(after_help = "Examples:
  host-bridge keys rotate                  begin: old keys stay valid
  host-bridge keys rotate --finish         finish: keys signed by older secrets become invalid
  host-bridge keys rotate --drop-old       both at once, if the secret has leaked

After --drop-old every key must be created again.")]
    Rotate {
        /// Create a new secret and drop all others: every key becomes invalid
        #[arg(long, conflicts_with = "finish")]
        drop_old: bool,

        /// Drop all secrets but the newest, and create none
        #[arg(long)]
        finish: bool,
    },
}

impl Keys {
    pub async fn run(self, context: &Context) -> Result<Exit> {
        context.paths.prepare()?;
        let store = Store::open(&keys::directory(&context.paths))?;
        let (entry, change): (_, Box<dyn FnOnce() -> Result<Exit>>) = match self.verb {
            Verb::Ls { all, quiet, json } => return list(&store, all, quiet, json),
            Verb::Revoke { ids } => {
                let named: Vec<_> = ids.iter().map(ToString::to_string).collect();
                let entry = control::entry("revoke_keys").fact("keys", named.join(","));
                (entry, Box::new(move || revoke(&store, &ids)))
            }
            Verb::AddSsh { id, file } => {
                let entry = control::entry("add_ssh_keys").fact("key", id.to_string());
                (entry, Box::new(move || add_ssh(&store, &id, &file)))
            }
            Verb::RmSsh { id } => {
                let entry = control::entry("remove_ssh_keys").fact("key", id.to_string());
                let remove = move || {
                    output::print_line(store.remove_ssh_keys(&id)?.id.as_str())?;
                    Ok(Exit::SUCCESS)
                };
                (entry, Box::new(remove))
            }
            Verb::Rotate { drop_old, finish } => {
                let entry =
                    control::entry("rotate_keys").fact("drop_old", drop_old).fact("finish", finish);
                (entry, Box::new(move || rotate(&store, drop_old, finish)))
            }
        };
        let audit = context.audit()?;
        let changed = change();
        let is_done = matches!(changed, Ok(Exit::SUCCESS));
        let outcome = if is_done { Outcome::Ok } else { Outcome::Failed };
        audit.record(Entry { outcome, ..entry });
        audit.close().await;
        changed
    }
}

fn list(store: &Store, all: bool, quiet: bool, as_json: bool) -> Result<Exit> {
    let mut listed = store.list()?;
    listed.retain(|(_, standing)| all || *standing == Standing::Valid);
    if as_json {
        let whole = |(key, standing): &(Issued, Standing)| {
            let mut whole = serde_json::to_value(key)?;
            whole["standing"] = json!(standing);
            Ok(whole)
        };
        let whole: Vec<_> = listed.iter().map(whole).collect::<serde_json::Result<_>>()?;
        output::print_json(&whole)?;
    } else if quiet {
        for (key, _) in &listed {
            output::print_line(key.id.as_str())?;
        }
    } else {
        let rows: Vec<_> = listed.iter().map(|(key, standing)| row(key, *standing)).collect();
        let head = ["ID", "NAME", "NAMESPACE", "SCOPES", "CREATED", "EXPIRES", "STATE"];
        output::print(&table::align(head, &rows))?;
    }
    Ok(Exit::SUCCESS)
}

fn row(key: &Issued, standing: Standing) -> [String; 7] {
    [
        key.id.to_string(),
        output::printable(key.name.as_deref().unwrap_or("-")),
        key.namespace.to_string(),
        key.scopes.to_string(),
        minute(key.issued_at_ms),
        key.expires_at_ms.map_or_else(|| "never".to_owned(), minute),
        standing.as_str().to_owned(),
    ]
}

/// A point in time to the minute, for a table.
fn minute(ms: u64) -> String {
    /// As in `2026-01-31T12:00`.
    const MINUTE_CHARS: usize = 16;
    let mut text = instant::format(ms);
    if let Some(fraction) = text.rfind(':') {
        text.truncate(fraction.max(MINUTE_CHARS));
    }
    text + "Z"
}

fn revoke(store: &Store, ids: &[KeyId]) -> Result<Exit> {
    let mut exit = Exit::SUCCESS;
    for id in ids {
        // One that is unknown must not keep the others valid.
        match store.revoke(id) {
            Ok(key) => output::print_line(key.id.as_str())?,
            Err(error) => exit = failure::report(&error.into()),
        }
    }
    Ok(exit)
}

fn add_ssh(store: &Store, id: &KeyId, file: &Path) -> Result<Exit> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let ssh_keys = SshKey::parse_file(&text).with_context(|| file.display().to_string())?;
    output::print_line(store.add_ssh_keys(id, &ssh_keys)?.id.as_str())?;
    Ok(Exit::SUCCESS)
}

fn rotate(store: &Store, drop_old: bool, finish: bool) -> Result<Exit> {
    let rotation = match (drop_old, finish) {
        (true, _) => Rotation::Replace,
        (_, true) => Rotation::Finish,
        _ => Rotation::Begin,
    };
    let secrets = store.rotate(rotation)?;
    output::note(&match rotation {
        Rotation::Begin => format!(
            "new keys are signed by a new secret; {secrets} secrets are in use until \
             `host-bridge keys rotate --finish`"
        ),
        Rotation::Finish => "keys signed by older secrets are now invalid".to_owned(),
        Rotation::Replace => "all existing keys are now invalid".to_owned(),
    });
    Ok(Exit::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::minute;

    #[test]
    fn a_table_shows_minutes() {
        assert_eq!(minute(951_827_696_789), "2000-02-29T12:34Z");
    }
}
