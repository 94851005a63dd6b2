//! The default settings.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::{
    AUDIT_FILE_BYTES_DEFAULT, BODY_BYTES_DEFAULT, CALLS_MEMORY_DEFAULT, CONNECTION_IDLE_DEFAULT,
    IDLE_END_DEFAULT, METRIC_VALUES_DEFAULT, POOL_AGE_DEFAULT, RUN_DEADLINE_DEFAULT,
    SSH_CONNECTIONS_DEFAULT, SSH_CONNECTIONS_PER_KEY_DEFAULT, SSH_IDLE_DEFAULT,
};
use super::listen::Listen;
use super::{
    Audit, BoxesAtEnd, Defaults, Egress, Events, Fleet, Forwards, ImagePolicy, LOCALHOST, Log,
    LogFormat, LogLevel, Metrics, Origin, Origins, Otel, Pool, Previews, Process, Server, Settings,
    Ssh,
};

/// The image names that the published clients send. They mean the root that the operator has set, and
/// for nothing where no root is set: a name never gives away the host's own files by itself.
pub(super) const IMAGES_DEFAULT: [&str; 6] = [
    "microsandbox/node",
    "microsandbox/python",
    "node",
    "node:20-slim",
    "python",
    "python:3.11-slim",
];

impl Settings {
    /// Lets the default names mean the root that the operator has set.
    pub(super) fn settle_images(&mut self) {
        let Some(root) = self.process.root.clone() else { return };
        for name in IMAGES_DEFAULT {
            // A setting that is switched off is set too.
            if self.origin(&format!("images.{name}")) == Origin::Default {
                self.images.insert(name.to_owned(), root.clone());
            }
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let server = Server {
            listen: vec![Listen::Tcp(([127, 0, 0, 1], 5555).into())],
            dev: false,
            tls_certificate: None,
            tls_key: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            console: true,
            body_bytes_max: BODY_BYTES_DEFAULT,
            connections_max: 4096,
            connection_idle: CONNECTION_IDLE_DEFAULT,
            header_timeout: Duration::from_secs(10),
            runs_max: 1024,
            runs_per_key_max: 512,
            memory_bytes_max: CALLS_MEMORY_DEFAULT,
            requests_per_second: 0,
            requests_burst: 100,
            run_deadline: RUN_DEADLINE_DEFAULT,
            shutdown_grace: Duration::from_secs(10),
            boxes_at_end: BoxesAtEnd::Keep,
            idle_end: Some(IDLE_END_DEFAULT),
        };
        Self {
            server,
            audit: Audit {
                enabled: true,
                reads: false,
                arguments: false,
                chain: false,
                refuse_on_failure: false,
                file_bytes_max: AUDIT_FILE_BYTES_DEFAULT,
                files_max: 16,
                age_max: None,
            },
            log: Log { format: LogFormat::Text, level: LogLevel::Info },
            defaults: Defaults {
                machine: "process",
                memory_mib: 512,
                cpu_millis: 1000,
                ttl: None,
                idle_ttl: None,
                on_idle: "stop",
                durability: "off",
                record: "on",
                keep_stopped: None,
                egress: Vec::new(),
            },
            process: Process::default(),
            forwards: Forwards { ports: 1024..=65535 },
            fleet: Fleet::default(),
            events: Events::default(),
            ssh: Ssh {
                listen: None,
                host_key: None,
                connections_max: SSH_CONNECTIONS_DEFAULT,
                connections_per_key_max: SSH_CONNECTIONS_PER_KEY_DEFAULT,
                idle: Some(SSH_IDLE_DEFAULT),
            },
            previews: Previews { url: Some(LOCALHOST.to_owned()), public: Vec::new() },
            pool: Pool {
                entries: Vec::new(),
                age_max: Some(POOL_AGE_DEFAULT),
                check_every: Duration::from_secs(10),
                starts_at_once: 1,
            },
            snapshots: sandbox::Retention::default(),
            egress: Egress {
                dns: None,
                allow_private: Vec::new(),
                ca: Vec::new(),
                connections_max: 256,
                connections_per_second: 50,
                bytes_per_second: 0,
                bytes_max: 0,
                idle: Duration::from_secs(600),
            },
            image_policy: ImagePolicy::default(),
            images: BTreeMap::new(),
            images_ca: Vec::new(),
            secrets: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            webhooks: BTreeMap::new(),
            templates: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            registries: BTreeMap::new(),
            caps: sandbox::caps::Caps::default(),
            otel: Otel::default(),
            metrics: Metrics { labels: Vec::new(), label_values_max: METRIC_VALUES_DEFAULT },
            file: None,
            origins: Origins::new(),
        }
    }
}
