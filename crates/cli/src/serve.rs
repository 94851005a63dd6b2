//! `serve`: the daemon, which owns the boxes that stay and is the door for programs.

mod journal;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::servers::{Served, Servers};
use settings::{Overrides, Settings};

/// Run the daemon that owns the boxes that stay, and the server for programs
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "Examples:
  host-bridge serve --dev                  no keys, for this machine alone
  MSB_API_KEY=$(host-bridge keygen) python3 script.py
  host-bridge serve --listen 0.0.0.0:5555 --set server.tls_certificate=c.pem --set server.tls_key=k.pem
  host-bridge serve --config burrow.toml --print-config
  host-bridge serve --listen off --stop-boxes

Programs find it at http://127.0.0.1:5555, people at control.sock in the runtime directory, which is
for this user alone. When it ends, boxes go on and the next daemon takes them over; with --stop-boxes
they are stopped. ctrl-c or SIGTERM ends it in order, a second one at once.

Sandboxes, images, keys and the audit log are kept in BURROW_STATE_DIR (/var/lib/burrow for root,
else $XDG_STATE_HOME/burrow or ~/.local/state/burrow), sockets in BURROW_RUNTIME_DIR (/run/burrow,
else $XDG_RUNTIME_DIR/burrow or /tmp/burrow-UID). BURROW_CONFIG, BURROW_AGENT and BURROW_IMAGES say
where the configuration, the agent and the kit of virtual machines are.")]
pub struct Serve {
    /// Where programs find it: an address and port, `unix:/path`, or `off`; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,

    /// Ask for no keys; on this machine's own addresses alone
    #[arg(long)]
    dev: bool,

    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Set an option of the configuration, as in `server.body_bytes_max=8MiB`
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,

    /// Stop all boxes at the end, instead of leaving them for the next daemon
    #[arg(long)]
    stop_boxes: bool,

    /// Show what holds and where it comes from, and end
    #[arg(long)]
    print_config: bool,

    /// Say whether the configuration is sound, and end
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
        let aliases = control::sound(&settings)?.aliases;
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
