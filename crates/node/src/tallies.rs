//! What a node counts of its fleet, for those who watch it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fleet::driver::now_ms;
use fleet::records::{Key, Readiness, Value};

use crate::Node;
use crate::leash::LeashFile;

/// Counted since the bridge started.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    /// Names that were taken through this node.
    pub placed: AtomicU64,
    pub refused: AtomicU64,
    /// Names that this node declared lost.
    pub lost: AtomicU64,
    /// How often half of the grace went by without a renewal.
    pub holds: AtomicU64,
}

/// The fleet, as this node sees it.
#[derive(Clone, Debug)]
pub struct FleetFigures {
    pub nodes: BTreeMap<Readiness, u64>,
    /// Whether this node holds its lease.
    pub is_held: bool,
    /// How long this node may go on without a renewal; zero when its lease is over.
    pub lease_left_ms: u64,
    pub placed: u64,
    pub refused: u64,
    pub lost: u64,
    pub holds: u64,
    /// Sandboxes that are paused until the lease is renewed.
    pub held_back: u64,
    pub quotas: Vec<QuotaUse>,
}

/// How much a namespace has of what it may have in the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    pub namespace: String,
    pub limit: u32,
    /// With what is being made. Absent while the store does not answer, or nothing was counted yet.
    pub used: Option<u64>,
}

impl Node {
    pub async fn figures(&self) -> FleetFigures {
        let mut nodes = BTreeMap::new();
        for record in self.roster().values() {
            *nodes.entry(record.readiness).or_default() += 1;
        }
        let leash = LeashFile::read(&self.0.paths).ok().flatten();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tallies = &self.0.tallies;
        FleetFigures {
            nodes,
            is_held: self.standing().is_ok(),
            lease_left_ms: leash.map_or(0, |leash| leash.end_at_ms.saturating_sub(now_ms())),
            placed: read(&tallies.placed),
            refused: read(&tallies.refused),
            lost: read(&tallies.lost),
            holds: read(&tallies.holds),
            held_back: self.0.held_back(),
            quotas: self.quotas().await,
        }
    }

    /// The namespaces that the settings name, with what they have. One that is only limited as all are is not among
    /// them: nobody knows all namespaces.
    async fn quotas(&self) -> Vec<QuotaUse> {
        let mut handle = self.handle().filter(|_| self.standing().is_ok());
        let mut quotas = Vec::new();
        for (namespace, limit) in self.0.settings.quota_pairs() {
            if namespace == settings::EVERY_NAMESPACE {
                continue;
            }
            let read = match &handle {
                Some(handle) => Some(handle.link.read(&Key::Quota(namespace.into())).await),
                None => None,
            };
            // One that does not answer is not asked for the next.
            if matches!(read, Some(Err(_))) {
                handle = None;
            }
            let used = match read.and_then(Result::ok).and_then(|entry| entry.value) {
                Some(Value::Quota(counter)) => {
                    Some(u64::from(counter.settled) + counter.joining.len() as u64)
                }
                _ => None,
            };
            quotas.push(QuotaUse { namespace: namespace.to_owned(), limit, used });
        }
        quotas
    }
}
