//! Bounds of forwarded ports, each with its reason.

use std::time::Duration;

use protocol::limits::STREAMS_MAX;

/// Forwarded ports of one sandbox: a service and its side doors are a handful.
pub const FORWARDS_PER_SANDBOX_MAX: usize = 64;
/// Forwarded ports of all sandboxes. Each is a descriptor and a task.
pub const FORWARDS_MAX: usize = 1024;
/// Connections into one sandbox at once; more wait. Each is a stream of the bridge's one link to
/// the agent, and most of the streams are for everything else.
pub const CONNECTIONS_PER_SANDBOX_MAX: usize = 512;
/// How often another port is asked for when the kernel's choice is taken on another address.
pub const ANY_PORT_TRIES_MAX: usize = 16;
/// The pause after the kernel refused a connection, for want of descriptors as a rule.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(CONNECTIONS_PER_SANDBOX_MAX * 4 <= STREAMS_MAX);
