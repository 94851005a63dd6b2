//! `serve`: run the daemon, which owns sandboxes that keep running, and the API server.

mod journal;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::{background, failure, output};
use crate::servers::{Served, Servers};
use crate::ssh_config::ADDRESS_DEFAULT;
use settings::{Overrides, Settings};

/// Run the daemon and the API server
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "Examples:
  host-bridge serve --dev                  no keys; this machine only
  MSB_API_KEY=$(host-bridge keygen) python3 script.py
  host-bridge serve --print-config > burrow.toml
  host-bridge serve --config burrow.toml --check-config
  host-bridge serve --listen off --stop-sandboxes
  host-bridge serve --ssh                  ssh NAME@127.0.0.1 -p 2222

The API listens on http://127.0.0.1:5555. For another address use TLS: --listen 0.0.0.0:5555 with `server.tls_certificate` and
`server.tls_key` in the configuration. The other commands use control.sock in the runtime directory,
which only this user can open. When the daemon ends, sandboxes keep running and the next daemon takes
them over; with --stop-sandboxes they are stopped. ctrl-c or SIGTERM shuts it down in order; a second one
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

    /// Let SSH into sandboxes at this address and port
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = ADDRESS_DEFAULT)]
    ssh: Option<String>,

    /// Join the fleet of this NATS server, as in `nats://10.0.0.1:4222`; repeatable
    #[arg(long, value_name = "ADDRESS")]
    fleet: Vec<String>,

    /// Read this configuration file (default: the first that exists of the usual places)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Set a configuration option, as in `server.body_bytes_max=8MiB`; repeatable
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,

    /// Stop all sandboxes when the daemon ends
    #[arg(long, alias = "stop-boxes")]
    stop_sandboxes: bool,

    /// Print the effective configuration with its sources, and exit
    #[arg(long)]
    print_config: bool,

    /// Check the configuration, and exit
    #[arg(long, conflicts_with = "print_config")]
    check_config: bool,

    /// Serve only the control socket, and end when nothing needs it: the daemon that a verb starts.
    #[arg(long, hide = true, conflicts_with_all = ["listen", "dev", "ssh", "fleet", "stop_sandboxes"])]
    unattended: bool,
}

impl Serve {
    pub fn is_unattended(&self) -> bool {
        self.unattended
    }

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
        let state = control::state_problems(&context.paths);
        let state = state.into_iter().map(|problem| format!("{}; {}", problem.what, problem.fix));
        let state = state.filter(|_| self.check_config);
        for warning in settings.warnings().into_iter().chain(unread).chain(missing).chain(state) {
            output::note(&output::printable(&warning));
        }
        if self.check_config {
            let file = settings.file.as_ref().map(|file| format!(" in {}", file.display()));
            let file = file.unwrap_or_else(|| ", without a file".to_owned());
            output::print_line(&output::printable(&format!("the configuration is valid{file}")))?;
            return Ok(Exit::SUCCESS);
        }
        // Held to the end: a verb that finds no daemon answering meanwhile waits for this one.
        let _place =
            if self.unattended { None } else { background::take_over(&context.paths).await? };
        let log_file = self.unattended.then(|| context.paths.daemon_log());
        let otel = control::telemetry(&settings);
        let _journal = journal::open(settings.log, log_file, otel.clone());
        let paths = context.paths.clone();
        match S::serve(paths, settings, journal::events(), otel, self.unattended).await {
            Ok(Served::Ended) => Ok(Exit::SUCCESS),
            Ok(Served::Hurried) => Ok(Exit::signalled(nix::libc::SIGINT)),
            Err(error) if self.unattended && background::is_served(&error) => {
                failure::report(&error);
                Ok(background::SERVED_ELSEWHERE)
            }
            Err(error) => Err(error),
        }
    }

    /// The settings that the flags set.
    fn overrides(&self) -> Result<Overrides> {
        let mut overrides = Overrides::default();
        for assignment in &self.set {
            overrides.set(assignment)?;
        }
        overrides.list("--listen", "server.listen", &self.listen);
        overrides.list("--fleet", "fleet.servers", &self.fleet);
        if let Some(address) = &self.ssh {
            overrides.text("--ssh", "ssh.listen", address);
        }
        if self.dev {
            overrides.text("--dev", "server.dev", "true");
        }
        if self.unattended {
            overrides.text("--unattended", "server.listen", "off");
        }
        if self.stop_sandboxes {
            overrides.text("--stop-sandboxes", "server.boxes_at_end", "stop");
        }
        Ok(overrides)
    }
}
