//! The configuration of a serving bridge: from flags, the environment, a TOML file, and defaults,
//! in this order.
//!
//! ```text
//!  table ──▶ which options there are, what they mean, what they may be
//!    │
//!    ├─▶ file:   TOML with positions ─┐
//!    ├─▶ load:   variables, flags ────┴─▶ Settings, with the origin of each value
//!    └─▶ page:   `--print-config`, dist/burrow.toml, docs/reference/configuration.md
//! ```
//!
//! One table knows all options, so that none can be parsed and not documented, or the reverse.
//! Parsing is pure; only [`Settings::load`] reads a file. `cli`, `control` and `daemon` load them, and the doors read
//! them; it starts nothing.

#![forbid(unsafe_code)]

mod buckets;
mod caps;
mod defaults;
mod error;
mod file;
mod fleet;
mod limits;
mod listen;
mod load;
mod namespaces;
mod page;
mod pool;
mod private;
mod registries;
mod secrets;
mod shown;
mod table;
mod telemetry;
mod templates;
mod value;
mod variables;
mod webhooks;
mod workspaces;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::dial::Scheme;
use host::secret;
use image::Pull;
use image::registry::RegistrySettings;
use sandbox::caps::Caps;
use sandbox::host_files::HOST_ROOT;
use sandbox::{Confinement, Retention, ScratchPolicy};

pub use error::{FilePosition, SettingsError};
pub use fleet::{EVERY_NAMESPACE, Fleet, WAIT};
pub use limits::RUN_DEADLINE_DEFAULT;
pub use listen::Listen;
pub use load::Overrides;
pub use namespaces::Namespace;
pub use page::{example, reference};
pub use pool::{Pool, PoolEntry, PoolLimit};
pub use telemetry::Otel;
pub use templates::TemplateTable;
pub use value::InvalidValue;
pub use variables::UnusedVariable;
pub use webhooks::Webhook;

/// The effective settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub server: Server,
    pub log: Log,
    pub audit: Audit,
    pub events: Events,
    pub caps: Caps,
    pub metrics: Metrics,
    pub otel: Otel,
    pub defaults: Defaults,
    pub process: Process,
    pub forwards: Forwards,
    pub fleet: Fleet,
    pub previews: Previews,
    pub ssh: Ssh,
    pub pool: Pool,
    /// Which snapshots are kept.
    pub snapshots: Retention,
    pub egress: Egress,
    pub image_policy: ImagePolicy,
    /// Names that clients may give for an image, and the directory that each means.
    pub images: BTreeMap<String, PathBuf>,
    /// Files of certificates to trust of every registry.
    pub images_ca: Vec<PathBuf>,
    /// The secrets that sandboxes may ask for by name.
    pub secrets: BTreeMap<String, secret::Entry>,
    /// The workspaces of sandboxes.
    pub workspaces: BTreeMap<String, workspace::Entry>,
    /// The receivers of events.
    pub webhooks: BTreeMap<String, Webhook>,
    /// The templates of sandboxes.
    pub templates: BTreeMap<String, TemplateTable>,
    /// Settings for single namespaces.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Settings for single registries, by host and port.
    pub registries: BTreeMap<String, RegistrySettings>,
    /// The file that was read.
    pub file: Option<PathBuf>,
    origins: Origins,
}

/// Where each value comes from that is not a default; by `section.key`.
type Origins = BTreeMap<String, Origin>;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(FilePosition),
    Environment { variable: String },
    Flag { flag: String },
}

/// `[server]`: the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Empty for none.
    pub listen: Vec<Listen>,
    pub dev: bool,
    pub tls_certificate: Option<PathBuf>,
    /// Set if `tls_certificate` is.
    pub tls_key: Option<PathBuf>,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    /// Whether browsers find the console at `/`.
    pub console: bool,
    pub body_bytes_max: u64,
    pub connections_max: usize,
    pub connection_idle: Duration,
    pub header_timeout: Duration,
    pub runs_max: usize,
    pub runs_per_key_max: usize,
    pub memory_bytes_max: u64,
    /// Zero for no limit.
    pub requests_per_second: u32,
    pub requests_burst: u32,
    pub run_deadline: Duration,
    pub shutdown_grace: Duration,
    pub boxes_at_end: BoxesAtEnd,
    /// For a daemon that a verb started; unlimited if absent.
    pub idle_end: Option<Duration>,
}

impl Server {
    /// The files of certificate and key, in PEM.
    pub fn tls(&self) -> Option<(&Path, &Path)> {
        Some((self.tls_certificate.as_deref()?, self.tls_key.as_deref()?))
    }
}

/// What happens to running sandboxes when the bridge ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxesAtEnd {
    /// They keep running, and the next bridge takes them over.
    Keep,
    Stop,
}

/// `[log]`: the log on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    pub level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
    /// Their names, in the same order.
    pub const NAMES: [&'static str; 5] = ["error", "warn", "info", "debug", "trace"];

    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// `[egress]`: limits for connections of sandboxes to other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The name server; the host's own resolver if absent.
    pub dns: Option<SocketAddr>,
    /// Ranges of addresses.
    pub allow_private: Vec<String>,
    /// Files of certificates that are trusted besides the host's own.
    pub ca: Vec<PathBuf>,
    pub connections_max: usize,
    pub connections_per_second: u32,
    /// Zero for no limit.
    pub bytes_per_second: u64,
    pub bytes_max: u64,
    pub idle: Duration,
}

/// `[audit]`: the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Audit {
    pub enabled: bool,
    pub reads: bool,
    pub arguments: bool,
    pub chain: bool,
    /// Whether operations that cannot be recorded are refused.
    pub refuse_on_failure: bool,
    pub file_bytes_max: u64,
    pub files_max: usize,
    /// No limit if absent.
    pub age_max: Option<Duration>,
}

/// `[metrics]`: additional labels of the series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Keys of labels.
    pub labels: Vec<String>,
    pub label_values_max: usize,
}

/// `[defaults]`: the values of a sandbox whose creator does not set them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// A kind of machine by its name; the list of options has those that there are.
    pub machine: &'static str,
    pub memory_mib: u64,
    /// Thousandths of a CPU.
    pub cpu_millis: u32,
    pub ttl: Option<Duration>,
    pub idle_ttl: Option<Duration>,
    /// What happens then, by its name.
    pub on_idle: &'static str,
    pub durability: &'static str,
    /// What is recorded of sessions, by its name.
    pub record: &'static str,
    /// Kept until removed if absent.
    pub keep_stopped: Option<Duration>,
    /// The default egress rules.
    pub egress: Vec<String>,
}

/// `[process]`: sandboxes of process machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The root of those without an image, as the operator has set it.
    pub root: Option<PathBuf>,
    /// How they are kept apart from the host.
    pub confinement: Confinement,
    /// Where their writable layers are.
    pub scratch: ScratchPolicy,
}

/// `[forwards]`: ports of this host that lead into sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwards {
    /// Those that clients may have.
    pub ports: RangeInclusive<u16>,
}

/// `[previews]`: ports of sandboxes behind the server's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previews {
    /// The origin below whose host each port has a name; [`LOCALHOST`] for names of this machine.
    pub url: Option<String>,
    /// Namespaces whose ports are for everybody; [`ALL_NAMESPACES`] for all.
    pub public: Vec<String>,
}

/// `[events]`: the stream of what happens to sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Whether it has programs and runs.
    pub programs: bool,
}

/// `[ssh]`: the door for SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// None for no door.
    pub listen: Option<SocketAddr>,
    /// The file of the host's key; none for one in the state directory.
    pub host_key: Option<PathBuf>,
    pub connections_max: usize,
    pub connections_per_key_max: usize,
    /// How long a connection may be without a channel; none for no limit.
    pub idle: Option<Duration>,
}

/// Names that mean this machine, whatever the port of the server.
pub const LOCALHOST: &str = "localhost";
/// The sign for all namespaces.
pub const ALL_NAMESPACES: &str = "*";

/// `[image_policy]`: the stored images that sandboxes may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePolicy {
    /// Names with stars, and digests. Empty for all.
    pub allow: Vec<String>,
    pub require_digest: bool,
    /// Names with a tag and the digest that the tag must have.
    pub pins: Vec<String>,
    /// When a missing image is pulled.
    pub pull: Pull,
}

impl Settings {
    /// Where the value of an option comes from, by `section.key`.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or(Origin::Default)
    }

    /// The root of process sandboxes without an image, when this serves. A server that asks for keys has
    /// clients that are not the operator, and the host's own files are the operator's to give.
    pub fn served_root(&self) -> Option<PathBuf> {
        let is_for_one = self.server.dev || self.server.listen.is_empty();
        self.process.root.clone().or_else(|| is_for_one.then(|| HOST_ROOT.into()))
    }

    /// Warnings about settings that are allowed but probably not intended, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let open: Vec<_> = self.server.listen.iter().filter(|at| !at.is_local()).collect();
        if let (Some(address), None) = (open.first(), self.server.tls()) {
            warnings.push(format!(
                "keys and data are sent unencrypted to {address}; set server.tls_certificate and \
                 server.tls_key, or use a proxy on this host"
            ));
        }
        let host = Path::new(HOST_ROOT);
        let is_named = |(name, root): &(&String, &PathBuf)| {
            root.as_path() == host && self.origin(&format!("images.{name}")) != Origin::Default
        };
        let named = self.images.iter().find(is_named);
        if let Some((name, _)) = named.filter(|_| self.served_root().as_deref() != Some(host)) {
            warnings.push(format!(
                "images.{name} is the host's own root, which is refused: set process.root to \"/\" \
                 if every client may read this host's files"
            ));
        }
        if self.server.run_deadline >= limits::CLIENT_PATIENCE {
            warnings.push(
                "server.run_deadline is longer than the published clients wait (300 s): they give \
                 up before the deadline is reported"
                    .to_owned(),
            );
        }
        let collector = &self.otel.endpoint.origin;
        if self.otel.enabled && collector.scheme == Scheme::Http && !collector.is_loopback() {
            warnings.push(format!(
                "telemetry and its headers are sent unencrypted to {collector}; use https in \
                 otel.endpoint, or a collector on this host"
            ));
        }
        for (host, _) in self.registries.iter().filter(|(_, registry)| registry.insecure) {
            warnings.push(format!(
                "images and credentials of {host} are sent unencrypted: registries.{host}.insecure is \
                 true"
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
