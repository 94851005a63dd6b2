//! `serve`: run the daemon, which owns sandboxes that keep running, and the API server.

mod journal;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::servers::{Served, Servers};
use settings::{Overrides, Settings};

/// Run the daemon and the API server
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "Examples:
  host-bridge serve --dev                  no keys; this machine only
  MSB_API_KEY=$(host-bridge keygen) python3 script.py
  host-bridge serve --listen 0.0.0.0:5555 --set server.tls_certificate=c.pem --set server.tls_key=k.pem
  host-bridge serve --config burrow.toml --print-config
  host-bridge serve --listen off --stop-boxes

The API listens on http://127.0.0.1:5555. The other commands use control.sock in the runtime directory,
which only this user can open. When the daemon ends, sandboxes keep running and the next daemon takes
them over; with --stop-boxes they are stopped. ctrl-c or SIGTERM shuts it down in order; a second one
ends it at once.

Sandboxes, images, keys and the audit log are stored in BURROW_STATE_DIR (/var/lib/burrow for root,
otherwise $XDG_STATE_HOME/burrow or ~/.local/state/burrow), sockets in BURROW_RUNTIME_DIR (/run/burrow,
otherwise $XDG_RUNTIME_DIR/burrow or /tmp/burrow-UID). BURROW_CONFIG, BURROW_AGENT and BURROW_IMAGES set
the paths of the configuration, the agent and the kit for virtual machines.")]
pub struct Serve {
    /// Set where the API listens: ADDRESS:PORT, `unix:/path` or `off`; repeatable (default:
    /// 127.0.0.1:5555)
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,

    /// Require no keys; allowed on loopback addresses only
    #[arg(long)]
    dev: bool,

    /// Read this configuration file (default: the first that exists of the usual places)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Set a configuration option, as in `server.body_bytes_max=8MiB`; repeatable
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,

    /// Stop all sandboxes when the daemon ends
    #[arg(long)]
    stop_boxes: bool,

    /// Print the effective configuration with its sources, and exit
    #[arg(long)]
    print_config: bool,

    /// Check the configuration, and exit
    #[arg(long, conflicts_with = "print_config")]
    check_config: bool,
}

impl Serve {
    pub async fn run<S: Servers>(&self, context: &Context) -> Result<Exit> {
        let settings = Settings::load(self.config.as_deref(), &self.overrides()?)?;
        if self.print_config {
            output::print(&settings.to_toml())?;
            return Ok(Exit::SUCCESS);
        }
        let aliases = control::check_settings(&settings)?.aliases;
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unread = settings.unread(names).into_iter().map(|one| one.to_string());
        let missing = control::missing(&context.paths, &settings.images, &aliases);
        for warning in settings.warnings().into_iter().chain(unread).chain(missing) {
            output::note(&output::printable(&warning));
        }
        if self.check_config {
            return Ok(Exit::SUCCESS);
        }
        let _journal = journal::open(settings.log);
        match S::serve(context.paths.clone(), settings, journal::events()).await? {
            Served::Ended => Ok(Exit::SUCCESS),
            Served::Hurried => Ok(Exit::signalled(nix::libc::SIGINT)),
        }
    }

    /// What the flags say of the settings.
    fn overrides(&self) -> Result<Overrides> {
        let mut overrides = Overrides::default();
        for assignment in &self.set {
            overrides.set(assignment)?;
        }
        overrides.list("--listen", "server.listen", &self.listen);
        if self.dev {
            overrides.text("--dev", "server.dev", "true");
        }
        if self.stop_boxes {
            overrides.text("--stop-boxes", "server.boxes_at_end", "stop");
        }
        Ok(overrides)
    }
}
