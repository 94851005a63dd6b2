//! The default settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::limits::{
    AUDIT_FILE_BYTES_DEFAULT, BODY_BYTES_DEFAULT, CONNECTION_IDLE_DEFAULT, METRIC_VALUES_DEFAULT,
    POOL_AGE_DEFAULT, RUN_DEADLINE_DEFAULT,
};
use super::listen::Listen;
use super::{
    Audit, BoxesAtEnd, Defaults, Egress, ImagePolicy, Log, LogFormat, LogLevel, Metrics, Origins,
    Pool, Server, Settings,
};

/// The image names that the published clients send.
const IMAGES_DEFAULT: [&str; 6] = [
    "microsandbox/node",
    "microsandbox/python",
    "node",
    "node:20-slim",
    "python",
    "python:3.11-slim",
];

impl Default for Settings {
    fn default() -> Self {
        let server = Server {
            listen: vec![Listen::Tcp(([127, 0, 0, 1], 5555).into())],
            dev: false,
            tls_certificate: None,
            tls_key: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_bytes_max: BODY_BYTES_DEFAULT,
            connections_max: 4096,
            connection_idle: CONNECTION_IDLE_DEFAULT,
            header_timeout: Duration::from_secs(10),
            runs_max: 1024,
            runs_per_key_max: 512,
            requests_per_second: 0,
            requests_burst: 100,
            run_deadline: RUN_DEADLINE_DEFAULT,
            shutdown_grace: Duration::from_secs(10),
            boxes_at_end: BoxesAtEnd::Keep,
        };
        let root = |name: &str| (name.to_owned(), PathBuf::from("/"));
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
                keep_stopped: None,
                egress: Vec::new(),
            },
            pool: Pool {
                entries: Vec::new(),
                age_max: Some(POOL_AGE_DEFAULT),
                check_every: Duration::from_secs(10),
                starts_at_once: 2,
            },
            egress: Egress {
                dns: None,
                allow_private: Vec::new(),
                authorities: None,
                connections_max: 256,
                connections_per_second: 50,
                bytes_per_second: 0,
                bytes_max: 0,
                idle: Duration::from_secs(600),
            },
            image_policy: ImagePolicy::default(),
            images: IMAGES_DEFAULT.into_iter().map(root).collect(),
            secrets: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            registries: BTreeMap::new(),
            caps: sandbox::caps::Caps::default(),
            metrics: Metrics { labels: Vec::new(), label_values_max: METRIC_VALUES_DEFAULT },
            file: None,
            origins: Origins::new(),
        }
    }
}
