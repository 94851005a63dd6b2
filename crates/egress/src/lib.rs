//! Decides what a sandbox may reach on the internet, and connects it.
//!
//! ```text
//!  guest: a name ──▶ resolver ──allowed──▶ an address of a range that leads nowhere, and listeners there
//!         a connection to it ──▶ which name? ─▶ first bytes ─▶ addresses ─▶ the host's connection
//!                                     │              │             │
//!                                     └── refused ◀──┴─────────────┘   each decision is reported
//! ```
//!
//! The guest has no network. Its agent only hands over what is sent to the addresses that this crate asks
//! for; every decision is made on this side, by the rules of the operator and the sandbox's creator.
//! `sandbox` starts it for each sandbox that has rules. It knows nothing about machines, and keeps one file:
//! which address stands for which name.

#![forbid(unsafe_code)]

mod authority;
mod broker;
mod carry;
mod connect;
mod connection;
mod dns;
mod event;
mod gates;
mod hello;
mod host;
mod http;
mod in_force;
mod inject;
mod limits;
mod lookup;
mod meter;
mod names;
mod preset;
mod proxy;
mod refused_hosts;
mod resolver;
mod rule;
mod trusted;
mod unreachable;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use protocol::egress::EGRESS_ADDRESS;
use protocol::requests::Arrival;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub use ::host::address::{InvalidRange, Range};
pub use broker::TLS_PORT;
pub use carry::Carried;
pub use event::{EgressEvent, EgressSink, EventSubject, Verdict};
pub use host::Host;
pub use in_force::RulesInForce;
pub use inject::{InjectedSecret, Injections, UnreadableSecret, fits_a_field, placeholder};
pub use limits::{
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, CONNECTIONS_PER_SECOND_DEFAULT, IDLE_DEFAULT,
    SECRET_HOSTS_MAX,
};
pub use names::{FILE as NAMES_FILE, copy as copy_names};
pub use preset::names as preset_names;
pub use refused_hosts::RefusedHosts;
pub use rule::{Defaults, RuleError, Rules};
pub use trusted::{BUNDLE, BUNDLE_VARIABLES};

use ::host::trust::TrustError;
use agent_client::guest::{FileTarget, Guest, GuestError};
use authority::AuthorityError;
use broker::Broker;
use carry::Plan;
use gates::{Gate, Gates};
use lookup::Lookup;
use meter::{Bucket, Meter};
use names::Names;

/// Where programs find their name server.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const NAME_SERVER_PORT: u16 = 53;
/// The port of the proxy, which environment variables name.
const PROXY_PORT: u16 = 3128;

/// What the operator allows each sandbox that has rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name server that is asked; the host's own resolver when absent.
    pub dns: Option<SocketAddr>,
    /// Addresses that may be reached although they are not of the internet.
    pub allow_private: Vec<Range>,
    /// Files of authorities that are trusted in addition to the host's own: by programs in the sandbox,
    /// and here for connections with injected secrets.
    pub ca: Vec<PathBuf>,
    /// Connections of one sandbox at once.
    pub connections_max: usize,
    pub connections_per_second: u32,
    /// Bytes of one sandbox, both ways together.
    pub bytes_per_second: Option<u64>,
    pub bytes_max: Option<u64>,
    /// A connection on which nothing moves for so long is ended.
    pub idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dns: None,
            allow_private: Vec::new(),
            ca: Vec::new(),
            connections_max: CONNECTIONS_DEFAULT,
            connections_per_second: CONNECTIONS_PER_SECOND_DEFAULT,
            bytes_per_second: None,
            bytes_max: None,
            idle: IDLE_DEFAULT,
        }
    }
}

/// Why a sandbox's egress cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("its agent could not set up egress: {0}")]
    Guest(#[from] GuestError),
    #[error(
        "{path} is read-only in the sandbox, because on this host it is on a file system of its own or beside \
        mounts that an ordinary user cannot put a layer over; start the bridge as root, or name an image"
    )]
    ReadOnly { path: &'static str },
    #[error("its saved names could not be read: {0}")]
    Names(io::Error),
    #[error("this bridge is shutting down")]
    Ending,
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// The state that all connections of one sandbox share.
struct Shared {
    guest: Guest,
    rules: RulesInForce,
    allow_private: Vec<Range>,
    idle: Duration,
    lookup: Lookup,
    names: Mutex<Names>,
    reporter: event::EventReporter,
    meter: Arc<Meter>,
    carried: Carried,
    places: Arc<tokio::sync::Semaphore>,
    rate: Bucket,
    askers: Arc<tokio::sync::Semaphore>,
    questions: Bucket,
    gates: Gates,
    /// Injects secrets into requests.
    broker: Option<Broker>,
}

/// What one sandbox may reach, and the secrets that go there.
#[derive(Debug, Default)]
pub struct EgressPolicy {
    pub rules: RulesInForce,
    pub secrets: Injections,
    /// Whether programs get the authorities that this host trusts, because their own files lack them.
    pub shares_trust: bool,
    /// Where the bytes of its connections are counted.
    pub carried: Carried,
}

/// Serves the egress of one sandbox until it is dropped.
#[derive(Debug)]
pub struct EgressGuard {
    rules: RulesInForce,
    gates: Gates,
    opening: Option<JoinHandle<()>>,
}

impl Drop for EgressGuard {
    fn drop(&mut self) {
        if let Some(opening) = &self.opening {
            opening.abort();
        }
        self.gates.close();
    }
}

impl EgressGuard {
    /// Opens the gates in the guest and serves them. Names that the sandbox has used are read from
    /// `directory`, and kept there.
    pub async fn open(
        guest: Guest,
        allowed: EgressPolicy,
        settings: &Settings,
        directory: Option<&Path>,
        sink: EgressSink,
    ) -> Result<Self, EgressError> {
        let EgressPolicy { rules, secrets, shares_trust, carried } = allowed;
        let broker = if secrets.is_empty() {
            None
        } else {
            Some(Broker::open(secrets, settings, directory).await?)
        };
        if shares_trust || broker.is_some() {
            let own = broker.as_ref().map(|broker| broker.authority.pem());
            trusted::add(&guest, &settings.ca, own.as_deref()).await?;
        }
        // What is replaced while this opens is followed, too.
        let replacements = rules.subscribe();
        let names = Names::open(directory, rules.names_max()).await.map_err(EgressError::Names)?;
        let per_second = f64::from(settings.connections_per_second);
        let (questions, burst) = (limits::QUESTIONS_PER_SECOND, limits::QUESTIONS_BURST);
        let shared = Shared {
            guest,
            rules,
            allow_private: settings.allow_private.clone(),
            idle: settings.idle,
            lookup: Lookup::new(settings.dns),
            names: Mutex::new(names),
            reporter: event::EventReporter::new(sink),
            meter: Arc::new(Meter::new(settings.bytes_per_second, settings.bytes_max)),
            carried,
            places: Arc::new(tokio::sync::Semaphore::new(settings.connections_max)),
            rate: Bucket::new(per_second, per_second * f64::from(limits::BURST_SECONDS)),
            askers: Arc::new(tokio::sync::Semaphore::new(limits::ASKERS_MAX)),
            questions: Bucket::new(questions.into(), burst.into()),
            gates: Gates::default(),
            broker,
        };
        let shared = Arc::new(shared);
        // If this fails or is cancelled, it closes what is open by then: otherwise those gates would conflict
        // with the next server's.
        let (rules, gates) = (shared.rules.clone(), shared.gates.clone());
        let serving = EgressGuard { rules, gates, opening: None };
        let doors = [
            (NAME_SERVER_PORT, Arrival::Question),
            (NAME_SERVER_PORT, Arrival::Connection),
            (PROXY_PORT, Arrival::Connection),
        ];
        for (port, arrival) in doors {
            gates::open(&shared, Gate { address: EGRESS_ADDRESS, port, arrival, host: None })?;
        }
        let known = shared.names.lock().await.all();
        for host in known {
            // A name whose address cannot be restored gets a new one when it is asked for.
            let _ = shared.address_of(&host).await;
        }
        shared.write_resolv_conf().await?;
        shared.gates.attend(in_force::follow(Arc::clone(&shared), replacements));
        Ok(serving)
    }
}

impl EgressGuard {
    /// Has other rules hold, from now on.
    pub fn replace(&self, rules: Rules) {
        self.rules.replace(rules);
    }

    /// Opens egress in the background with these rules, and reports errors.
    pub fn later(
        rules: RulesInForce,
        opening: impl Future<Output = Result<Self, EgressError>> + Send + 'static,
        trouble: impl FnOnce(EgressError) + Send + 'static,
    ) -> Self {
        let gates = Gates::default();
        let handles = gates.clone();
        let opening = tokio::spawn(async move {
            match opening.await {
                // It continues until this task is ended.
                Ok(_serving) => handles.closed().await,
                Err(error) => trouble(error),
            }
        });
        Self { rules, gates, opening: Some(opening) }
    }
}

impl Shared {
    /// The reader of a connection on its way, if it has one.
    fn reader(&self, host: &Host, port: u16, plan: &Plan) -> Option<&Broker> {
        let is_not = matches!(self.is_read(host, port, plan), Ok(false));
        self.broker.as_ref().filter(|_| !is_not)
    }

    /// Whether a connection is read on its way.
    fn is_read(&self, host: &Host, port: u16, plan: &Plan) -> Result<bool, UnreadableSecret> {
        match &self.broker {
            Some(broker) if plan.is_tls && port == TLS_PORT => broker.secrets.are_for(host),
            _ => Ok(false),
        }
    }

    async fn write_resolv_conf(&self) -> Result<(), EgressError> {
        let text = format!(
            "# The host answers for the names that this sandbox may reach.\n\
             nameserver {EGRESS_ADDRESS}\noptions use-vc timeout:15 attempts:1\n"
        );
        write_file(&self.guest, RESOLV_CONF, text.as_bytes()).await
    }
}

/// Puts a file into the guest that everybody there may read.
async fn write_file(guest: &Guest, path: &'static str, bytes: &[u8]) -> Result<(), EgressError> {
    let writing = async {
        let target =
            FileTarget { permissions: Some(0o644), parents: true, ..FileTarget::replace(path) };
        let mut upload = guest.write_file(target)?.of_the_bridge();
        upload.write(bytes).await?;
        upload.finish().await
    };
    match writing.await {
        Ok(_) => Ok(()),
        Err(GuestError::Fault(fault)) if fault.errno == Some(Errno::EROFS as i32) => {
            Err(EgressError::ReadOnly { path })
        }
        Err(error) => Err(error.into()),
    }
}
