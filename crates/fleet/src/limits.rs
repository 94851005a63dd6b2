//! The bounds and times of the fleet. Everything else takes them from here.

/// How often a member renews its lease.
pub const RENEW_EVERY_MS: u64 = 1_000;
/// How long a member may go without a renewal before its sandboxes are ended; they are paused at half of it.
/// NATS changes a leader in 5 to 8 seconds, during which nobody can renew.
pub const GRACE_MS: u64 = 20_000;
/// A lease lives longer in the store than its member trusts it, by a tenth for clocks that run at different
/// rates and by this much for the store's own rounding to whole seconds.
pub const LEASE_MARGIN_MS: u64 = 2_000;
/// How many nodes are asked for an offer. With more the best is hardly better; each costs a message.
pub const OFFERS: usize = 6;
/// How long a node keeps room for a create that has not started yet.
pub const RESERVE_MS: u64 = 15_000;
/// How long a node remembers that it refused an incarnation, so that a late message cannot start it. It is
/// longer than any message is under way.
pub const REFUSED_MS: u64 = 120_000;
/// How often a counter is written again after somebody else was quicker.
pub const COUNTER_ATTEMPTS: u32 = 64;
/// Creates of one namespace that are counted and not yet claimed, at once.
pub const JOINING_MAX: usize = 256;
/// After this long a counted create that has not claimed its name is dropped by a repair.
pub const JOINING_MS: u64 = 30_000;
/// How often one create starts from the beginning because what it found had changed.
pub const CREATE_ATTEMPTS: u32 = 4;
/// How often a member compares the names it has with the records that name it.
pub const RESCAN_EVERY_MS: u64 = 300_000;
/// Creates that one member carries out at once as a gateway.
pub const CREATES_MAX: usize = 4_096;
/// Sandboxes and reservations of one node.
pub const HOLDINGS_MAX: usize = 16_384;
/// Bytes of a record in the store; NATS refuses messages over a megabyte by default.
pub const RECORD_BYTES_MAX: usize = 256 * 1024;
/// How often a member looks at the lease of one other node, drawn at random: each node is looked at about once a
/// second by somebody, however many there are.
pub const SWEEP_EVERY_MS: u64 = 1_000;
/// Nodes that one member sweeps at once.
pub const SWEEPS_MAX: usize = 4;
/// Names that a sweep declares lost at once.
pub const DECLARED_AT_ONCE: usize = 64;
/// How long an answer of the store or of another member is waited for.
pub const ANSWER_MS: u64 = 3_000;
/// How long a bucket remembers that a key has been removed or has run out.
pub const MARKER_S: u64 = 3_600;
/// Characters of what a node says about a start that has failed.
pub const FAILURE_CHARS_MAX: usize = 4_096;
/// Events that wait for one member; more hold up who sends them.
pub const EVENTS_MAX: usize = 4_096;
/// Streams that durable output is spread over, each with a leader of its own. All nodes must have the same.
pub const LOG_SHARDS: usize = 4;
/// The pause before an append that got no answer is tried again. It doubles up to the next.
pub const APPEND_PAUSE_MS: u64 = 50;
pub const APPEND_PAUSE_MAX_MS: u64 = 1_000;
/// How often a member is given the time.
pub const TICK_MS: u64 = 250;
