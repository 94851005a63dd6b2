//! What a seed lets the two ends do. Both ends know the plan, so a request needs only a name.

use protocol::requests::{Origin, SpoolPolicy};

use crate::random::Random;

const KIB: u64 = 1024;

pub struct Plan {
    pub sessions: Vec<SessionPlan>,
    pub uploads: Vec<TransferPlan>,
    pub downloads: Vec<TransferPlan>,
    pub forwards: Vec<ForwardPlan>,
    pub calls: u64,
    /// How often the host adopts its agent.
    pub adoptions: u64,
    /// How often the link is cut before it is left intact.
    pub cuts: u64,
    /// One step in so many cuts the link.
    pub cut_odds: u64,
    /// Once, the agent forgets the client, as after a resume window that was overrun.
    pub amnesia: bool,
    pub budget_bytes: usize,
}

/// A program that writes `length` bytes and reads its input.
pub struct SessionPlan {
    pub key: u64,
    pub length: u64,
    pub policy: SpoolPolicy,
    pub spool_bytes: usize,
    pub viewers: Vec<ViewerPlan>,
    pub input: Option<TransferPlan>,
}

pub struct ViewerPlan {
    pub origin: Origin,
    pub holder: Option<HolderKind>,
    pub patience: u64,
    pub gives_up_at: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HolderKind {
    /// There from the first byte on.
    Named,
    /// There as long as its subscription.
    Passing,
}

pub struct TransferPlan {
    pub key: u64,
    pub length: u64,
    /// How eagerly the receiver takes bytes.
    pub patience: u64,
    /// The agent gives it up here.
    pub fails_at: Option<u64>,
    /// The host gives it up here.
    pub gives_up_at: Option<u64>,
}

impl TransferPlan {
    /// Whether either end gives it up, perhaps.
    pub fn may_end_early(&self) -> bool {
        self.fails_at.is_some() || self.gives_up_at.is_some()
    }
}

impl ViewerPlan {
    /// Whether bytes may be gone before this viewer has them.
    pub fn may_miss(&self, policy: SpoolPolicy) -> bool {
        self.holder.is_none()
            || policy == SpoolPolicy::DropOldest
            || matches!(self.origin, Origin::Offset { .. })
    }
}

pub struct ForwardPlan {
    pub up: TransferPlan,
    pub down: TransferPlan,
}

/// The holder that every session begins with.
pub const HOLDER: &str = "main";

impl Plan {
    pub fn new(random: &mut Random) -> Self {
        let mut keys = 0..;
        let mut transfer = |random: &mut Random| TransferPlan {
            key: keys.next().expect("keys do not end"),
            length: random.magnitude(1024 * KIB),
            patience: patience(random),
            fails_at: random.once_in(12).then(|| random.magnitude(256 * KIB)),
            gives_up_at: random.once_in(12).then(|| random.magnitude(256 * KIB)),
        };
        let uploads = (0..random.below(3)).map(|_| transfer(random)).collect();
        let downloads = (0..random.below(3)).map(|_| transfer(random)).collect();
        let forwards = (0..random.below(3))
            .map(|_| ForwardPlan { up: transfer(random), down: transfer(random) })
            .collect();
        let sessions = (0..random.below(4))
            .map(|_| {
                let TransferPlan { key, mut length, .. } = transfer(random);
                if random.once_in(3) {
                    length = random.below(1024 * KIB);
                }
                let input = random.once_in(3).then(|| transfer(random));
                SessionPlan::new(key, length, input, random)
            })
            .collect();
        let cuts = random.magnitude(24);
        Self {
            sessions,
            uploads,
            downloads,
            forwards,
            calls: random.below(8),
            adoptions: if random.once_in(3) { 1 + random.below(3) } else { 0 },
            cuts,
            cut_odds: 10 + random.magnitude(500),
            amnesia: cuts > 0 && random.once_in(20),
            budget_bytes: (random.magnitude(4096) * KIB) as usize,
        }
    }
}

impl SessionPlan {
    fn new(key: u64, length: u64, input: Option<TransferPlan>, random: &mut Random) -> Self {
        let policy = if random.once_in(3) { SpoolPolicy::DropOldest } else { SpoolPolicy::Block };
        let named = ViewerPlan {
            origin: Origin::Oldest {},
            holder: Some(HolderKind::Named),
            patience: patience(random),
            gives_up_at: None,
        };
        let others = (0..random.below(3)).map(|_| ViewerPlan {
            origin: match random.below(3) {
                0 => Origin::Oldest {},
                1 => Origin::Tail { bytes: random.magnitude(64 * KIB) },
                _ => Origin::Offset { offset: random.below(length + 1) },
            },
            holder: random.once_in(3).then_some(HolderKind::Passing),
            patience: patience(random),
            gives_up_at: random.once_in(4).then(|| random.magnitude(128 * KIB)),
        });
        let viewers = std::iter::once(named).chain(others).collect();
        let spool_bytes = ((64 * KIB) << random.below(3)) as usize;
        Self { key, length, policy, spool_bytes, viewers, input }
    }
}

/// Most readers keep up, some are slow, a few stand nearly still.
fn patience(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 300,
        1 | 2 => 20,
        _ => 2,
    }
}
