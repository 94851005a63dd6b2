//! The bounds and times of a node, beside those of the fleet.

use std::time::Duration;

/// How long after the end of a lease the guardian waits for the bridge to have ended its sandboxes. The store keeps
/// the lease for a tenth and two seconds longer than the bridge; the rest of that is the guardian's.
pub const BRIDGE_ENDS_MS: u64 = 800;
/// How long a guardian sleeps at most: its sleep does not go on while the host is suspended, and the lease does.
pub const GUARDIAN_SLEEP_MAX: Duration = Duration::from_millis(250);
/// How long a bridge waits for its guardian to be there, and a guardian for the one before it to be gone.
pub const GUARDIAN_START_MAX: Duration = Duration::from_secs(5);
/// How long a new sandbox waits for the guardian of a node that has just joined: less than another node waits for an
/// answer.
pub const GUARDIAN_WAIT_MAX: Duration = Duration::from_millis(2_500);
/// How long a bridge or a guardian waits between two looks at the lock.
pub const GUARDIAN_LOOK_PAUSE: Duration = Duration::from_millis(20);
/// How long a name that was placed here waits for the call that makes its sandbox.
pub const PLACED_MAX: Duration = Duration::from_secs(30);
/// Names that wait for that at once.
pub const PLACED_COUNT_MAX: usize = 1_024;
/// How often a node that has no lease for the moment looks for sandboxes that came to run.
pub const HOLD_LOOK_PAUSE: Duration = Duration::from_millis(250);
/// How long a node goes without a look at the phase of its lease: its sleep does not go on while the host is suspended,
/// and the lease does.
pub const LEASE_LOOK_MAX: Duration = Duration::from_secs(1);
/// The pause between two attempts to reach NATS.
pub const CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// How long what other nodes say of themselves is used without a look.
pub const ROSTER_AGE_MAX: Duration = Duration::from_secs(1);
/// How long a gateway sends calls for a sandbox to where it was, without a look at NATS.
pub const ROUTE_AGE_MAX: Duration = Duration::from_secs(2);
/// How often a node looks whether images have come or gone.
pub const IMAGES_LOOK_PAUSE: Duration = Duration::from_secs(5);
/// Names and digests of images that a node tells the others: with more, a record would outgrow its bound.
pub const IMAGES_DESCRIBED_MAX: usize = 1_000;
/// How long a new description of this node is waited for, and the pause between two looks at it.
pub const DESCRIBE_MAX: Duration = Duration::from_secs(2);
pub const DESCRIBE_LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How often a write of a document begins again because others have changed it.
pub const DOCUMENT_WRITES_MAX: usize = 8;
/// The pause before what a stopped sandbox would be made of again is forgotten once more.
pub const FORGET_PAUSE: Duration = Duration::from_secs(2);
/// The pause before a lost sandbox is made again once more. It doubles up to the next.
pub const RETURN_PAUSE: Duration = Duration::from_secs(1);
pub const RETURN_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a mark is good. A host's clock may be wrong by as much.
pub const MARK_MS: u64 = 30_000;
/// Nodes that a key in common is kept with.
pub const COMMON_KEYS_MAX: usize = 4_096;
/// The longest mark, in bytes of its header.
pub const MARK_BYTES_MAX: usize = 8 * 1024;
/// The longest text of a thing that other nodes are asked for.
pub const THING_BYTES_MAX: usize = 256;
/// Nodes that all searches of a gateway ask at once.
pub const LOOKS_AT_ONCE: usize = 64;
/// Things whose node a gateway remembers.
pub const THINGS_SEEN_MAX: usize = 16_384;
/// CPUs that are promised for each that the host has, where the configuration does not say.
pub const CPUS_PROMISED: u32 = 8;
/// The longest file of a lease.
pub const LEASH_BYTES_MAX: u64 = 4 * 1024;
