//! The labels with which this door marks sandboxes.

/// What the names of this door's own labels begin with. Others of a client have no names like these.
pub const OWN_LABELS: &str = "daytona.";
/// The label of a sandbox that is removed when it stops.
pub const EPHEMERAL: &str = "daytona.ephemeral";
/// The label with the snapshot that a sandbox was asked for.
pub const SNAPSHOT: &str = "daytona.snapshot";
/// The label with the target that it was asked for.
pub const TARGET: &str = "daytona.target";
