//! Starts the API servers from the settings, and stops them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::remote::OtherSandboxes;
use access::audit::Audit;
use access::keys::{self, Keyring, KeysError};
use access::preview::Previews;
use api::{Api, Limits, MetricLabels, Options, Origins, RateOption, Threads};
use host::paths::Paths;
use host::tls::{Tls, TlsFiles};
use node::Node;
use otel::Otel;
use sandbox::Registry;
use services::artifact::Artifacts;
use services::events::Events;
use services::notebook::Notebooks;
use settings::{Listen, Settings};

/// Why the API server could not start.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    #[error("cannot listen on {on}: {source}; choose another address with --listen, or `off`")]
    Listen { on: Listen, source: io::Error },
    #[error("cannot open the door for SSH on {on}: {source}")]
    Ssh { on: SocketAddr, source: ssh::OpenError },
    #[error(transparent)]
    Keys(#[from] KeysError),
}

/// See the module's description.
pub(super) struct Door {
    api: Api,
    addresses: Vec<String>,
    ending: watch::Sender<bool>,
    servers: JoinSet<()>,
    grace: Duration,
}

impl Door {
    pub(super) async fn open(
        settings: &Settings,
        paths: &Paths,
        registry: &Registry,
        stores: (Notebooks, Artifacts, Option<Events>),
        audit: Audit,
        (tls, threads, node, otel): (Option<Tls>, &Arc<Threads>, Option<Node>, Otel),
    ) -> Result<Self, DoorError> {
        let server = &settings.server;
        let keyring = if server.dev { None } else { Some(Keyring::open(&keys::directory(paths))?) };
        let tls = tls.map(Arc::new);
        let (notebooks, artifacts, events) = stores;
        let options = Options {
            notebooks: Some(notebooks),
            artifacts: Some(artifacts),
            events,
            answers: Some(paths.answers()),
            audit,
            otel,
            node,
            fleet_ca: settings.fleet.ca.iter().cloned().collect(),
            fleet_certificate: own_certificate(settings),
            mutual_tls: settings.fleet.mutual_tls,
            ..options(settings, keyring)
        };
        let api = Api::new(registry.clone(), options);
        api.take_up().await;
        let (ending, ended) = watch::channel(false);
        let mut addresses = Vec::new();
        let mut servers = JoinSet::new();
        for on in &server.listen {
            let bound = api::Server::bind(api.clone(), on, tls.clone()).await;
            let failed = |source| DoorError::Listen { on: on.clone(), source };
            let bound = bound.map_err(failed)?;
            addresses.push(bound.url());
            servers.spawn(bound.run(Arc::clone(threads), ended.clone()));
        }
        if let Some(on) = settings.ssh.listen {
            let opened = ssh::Server::bind(ssh_options(settings, paths, &api)?, on).await;
            let opened = opened.map_err(|source| DoorError::Ssh { on, source })?;
            addresses.push(opened.url());
            servers.spawn(opened.run(ended));
        }
        Ok(Self { api, addresses, ending, servers, grace: server.shutdown_grace })
    }

    /// The handlers of the server.
    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    /// The addresses it listens on.
    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Accepts no new calls, waits for running ones for the grace period, and then cuts them off.
    pub(super) async fn close(mut self) {
        self.api.end();
        self.ending.send_replace(true);
        let served = async { while self.servers.join_next().await.is_some() {} };
        // Those that overrun it are cut off by the end of their servers.
        let _ = tokio::time::timeout(self.grace, served).await;
        self.servers.shutdown().await;
    }
}

/// SSH always asks for a key, also where the API does not: a client has nothing else to say who it is.
fn ssh_options(settings: &Settings, paths: &Paths, api: &Api) -> Result<ssh::Options, KeysError> {
    let own = settings.ssh.host_key.clone();
    Ok(ssh::Options {
        registry: api.registry().clone(),
        keyring: Keyring::open(&keys::directory(paths))?,
        audit: api.audit().clone(),
        forwards: api.forwards().clone(),
        elsewhere: api.node().map(|_| Arc::new(OtherSandboxes(api.clone())) as _),
        makes_key: own.is_none(),
        host_key: own.unwrap_or_else(|| paths.ssh_host_key()),
        limits: ssh::limits::Limits {
            connections_max: settings.ssh.connections_max,
            connections_per_key_max: settings.ssh.connections_per_key_max,
            idle_max: settings.ssh.idle,
        },
    })
}

/// What this node shows to other nodes that ask for a certificate.
fn own_certificate(settings: &Settings) -> Option<TlsFiles> {
    let (certificate, key) = settings.fleet.certificate.clone().zip(settings.fleet.key.clone())?;
    Some(TlsFiles { certificate, key, clients: None })
}

/// The names of images that clients may send, and their roots.
pub(super) fn images(settings: &Settings) -> BTreeMap<String, String> {
    let images = settings.images.iter();
    images.map(|(name, root)| (name.clone(), root.to_string_lossy().into_owned())).collect()
}

fn options(settings: &Settings, keyring: Option<Keyring>) -> Options {
    let server = &settings.server;
    let per_second = NonZeroU32::new(server.requests_per_second);
    let rate = per_second.map(|per_second| RateOption {
        per_second,
        burst: NonZeroU32::new(server.requests_burst).unwrap_or(per_second),
    });
    let origins =
        Origins { hosts: server.allowed_hosts.clone(), origins: server.allowed_origins.clone() };
    let limits = Limits {
        body_bytes_max: server.body_bytes_max,
        connections_max: server.connections_max,
        connection_idle_max: server.connection_idle,
        head_time_max: server.header_timeout,
        runs_max: server.runs_max,
        runs_per_key_max: server.runs_per_key_max,
        memory_bytes_max: server.memory_bytes_max,
        rpc_run_deadline: server.run_deadline,
    };
    let metric_labels = MetricLabels {
        keys: settings.metrics.labels.clone(),
        values_max: settings.metrics.label_values_max,
    };
    Options {
        keyring,
        rate,
        origins,
        limits,
        images: images(settings),
        metric_labels,
        forwarded_ports: settings.forwards.ports.clone(),
        console: settings.server.console,
        previews: Previews::new(settings.previews.url.as_deref(), settings.previews.public.clone()),
        ..Options::local()
    }
}
