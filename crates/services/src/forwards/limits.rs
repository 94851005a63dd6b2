//! Bounds of forwarded ports, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

use protocol::limits::STREAMS_MAX;

/// Forwarded ports of one sandbox: a service and its side doors are a handful.
pub const FORWARDS_PER_SANDBOX_MAX: usize = 64;
/// Forwarded ports of all sandboxes. Each is a descriptor and a task.
pub const FORWARDS_MAX: usize = 1024;
/// Connections into one sandbox at once; more wait. Each is a stream of the bridge's one link to
/// the agent, and most of the streams are for everything else.
pub const CONNECTIONS_PER_SANDBOX_MAX: usize = 512;
/// The host ports that anyone who may forward can use: below, people expect services of the host, and a
/// sandbox could pose as one.
pub const PORTS_DEFAULT: RangeInclusive<u16> = 1024..=65535;
/// How many ports of an operator's range are tried to find a free one.
pub const PORTS_TRIED_MAX: usize = 1024;
/// How often to ask for another port when the kernel's choice is taken on another address.
pub const ANY_PORT_TRIES_MAX: usize = 16;
/// The pause after the kernel refused a connection, for want of descriptors as a rule.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection waits for another to end when a sandbox has as many as it may: a page with all
/// that belongs to it is loaded meanwhile.
pub const PLACE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a program may take to accept a connection. The kernel does it at once while the program
/// listens; this is for one whose queue is full.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long neither side of a connection may say anything: as long as a client may take nothing of what
/// is sent to it. Programs that hold a connection open for longer say so every minute or so.
pub const SILENCE_MAX: Duration = Duration::from_secs(600);

const _: () = assert!(CONNECTIONS_PER_SANDBOX_MAX * 4 <= STREAMS_MAX);
