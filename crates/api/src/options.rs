//! What a door is opened with.
//!
//! The crate's face shows it; `daemon` fills it from the configuration.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use access::audit::Audit;
use access::keys::Keyring;
use access::preview::Previews;
use host::tls::TlsFiles;
use node::Node;
use otel::Otel;
use services::artifact::Artifacts;
use services::events::Events;
use services::forwards::limits::PORTS_DEFAULT;
use services::notebook::Notebooks;

use super::caller::RateOption;
use super::limits::Limits;
use super::origin::Origins;
use super::prometheus::MetricLabels;

/// What a door is opened with.
pub struct Options {
    /// None where a client that reaches the server may do everything.
    pub keyring: Option<Keyring>,
    pub rate: Option<RateOption>,
    pub origins: Origins,
    pub limits: Limits,
    /// From the names of images that clients send to the roots here.
    pub images: BTreeMap<String, String>,
    /// None where nothing outlives this process.
    pub notebooks: Option<Notebooks>,
    /// None where nothing is kept of runs.
    pub artifacts: Option<Artifacts>,
    /// What happens to sandboxes; None where it is not recorded.
    pub events: Option<Events>,
    /// Where answers to idempotent calls are kept; None where nothing outlives this process.
    pub answers: Option<PathBuf>,
    /// Where operations are recorded.
    pub audit: Audit,
    /// Where spans of requests go.
    pub otel: Otel,
    /// Which labels of sandboxes are in the figures.
    pub metric_labels: MetricLabels,
    /// The ports of this host that clients may have forwarded.
    pub forwarded_ports: RangeInclusive<u16>,
    /// The fleet that this bridge is of.
    pub node: Option<Node>,
    /// Whom connections to its other nodes trust, besides those whom the host trusts.
    pub fleet_ca: Vec<PathBuf>,
    /// The certificate that this node shows to others.
    pub fleet_certificate: Option<TlsFiles>,
    /// Whether others must show one.
    pub mutual_tls: bool,
    /// Who may look at ports of sandboxes, and under which names.
    pub previews: Previews,
    /// Whether browsers find the console at `/`.
    pub console: bool,
}

impl Options {
    /// For those who are on this machine and may do everything, with nothing configured.
    pub fn local() -> Self {
        Self {
            keyring: None,
            rate: None,
            origins: Origins::default(),
            limits: Limits::default(),
            images: BTreeMap::new(),
            notebooks: None,
            artifacts: None,
            events: None,
            answers: None,
            audit: Audit::default(),
            otel: Otel::default(),
            metric_labels: MetricLabels::default(),
            forwarded_ports: PORTS_DEFAULT,
            node: None,
            fleet_ca: Vec::new(),
            fleet_certificate: None,
            mutual_tls: false,
            previews: Previews::default(),
            console: true,
        }
    }
}
