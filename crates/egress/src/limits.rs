//! Bounds of egress, each with its reason.

use std::time::Duration;

/// Rules of one sandbox: a list that people write, or a program that knows what it needs.
pub const RULES_MAX: usize = 256;
/// Addresses and ports that the guest listens on: each is a request that waits for its answer. So
/// many names a sandbox can have at one moment as their ports have room in that; the name that was
/// used longest ago goes.
pub const GATES_MAX: usize = 512;
/// Ports of one name: each is a listener in the guest.
pub const PORTS_PER_NAME_MAX: usize = 16;
/// The file of the names that a sandbox has used, one per line: as many as there are addresses.
pub const NAMES_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The pause after the guest could not listen somewhere: a program has the port at all addresses.
pub const GATE_PAUSE: Duration = Duration::from_secs(2);

/// Questions for names, of one sandbox: a browser asks some dozens for a page.
pub const QUESTIONS_PER_SECOND: u32 = 100;
pub const QUESTIONS_BURST: u32 = 400;
/// Concurrent queries of one sandbox.
pub const ASKERS_MAX: usize = 64;
/// Queries of one connection to the name server, which could otherwise be kept forever.
pub const QUESTIONS_PER_CONNECTION_MAX: usize = 1024;
/// A name server's connection on which nothing is asked.
pub const QUESTION_IDLE: Duration = Duration::from_secs(30);
/// How long programs may cache a name's address. It belongs to the name as long as the sandbox
/// lives, but long-running programs must ask again before their address is given to another name.
pub const ANSWER_TTL_S: u32 = 60;
/// A message of the name system over TCP; one over UDP is smaller.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Names of aliases that are followed in one answer of a server.
pub const ALIASES_MAX: usize = 16;

/// Questions to the host's resolver at once, of one sandbox and of all: each may hold a thread for
/// as long as the resolver takes.
pub const LOOKUPS_PER_SANDBOX_MAX: usize = 16;
pub const LOOKUPS_MAX: usize = 128;
/// A name is looked up within so long, or not at all.
pub const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);
/// A name server is asked again after so long, and so often.
pub const SERVER_PATIENCE: Duration = Duration::from_secs(2);
pub const SERVER_TRIES: usize = 3;
/// Addresses of one name; further ones are ignored.
pub const ADDRESSES_MAX: usize = 16;
/// How long a lookup is cached.
pub const FOUND_KEPT: Duration = Duration::from_secs(30);
/// How long the absence of a name is cached.
pub const MISSED_KEPT: Duration = Duration::from_secs(5);
/// Names whose addresses are remembered, of one sandbox.
pub const FOUND_MAX: usize = 1024;

/// Addresses that are tried, one after the other, and how long each is given.
pub const ATTEMPTS_MAX: usize = 4;
pub const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a client may send nothing at the beginning of a checked connection.
pub const FIRST_BYTES_DEADLINE: Duration = Duration::from_secs(30);
/// What a client may send before its host is known: a TLS greeting.
pub const GREETING_BYTES_MAX: usize = 32 * 1024;
/// The head of one request.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of one head.
pub const FIELDS_MAX: usize = 256;
/// The size line of a chunk, and the trailer of the last.
pub const PIECE_LINE_BYTES_MAX: usize = 4096;
/// Bytes that are read of a connection at once: one chunk of the link.
pub const READ_BYTES: usize = protocol::limits::CHUNK_BYTES_MAX;
/// How often a connection is checked during its idle limit.
pub const IDLE_LOOKS: u32 = 8;

/// Hosts that one secret is sent to: each is a name in the certificate that a sandbox is given.
pub const SECRET_HOSTS_MAX: usize = 32;
/// The key of a sandbox's authority has less than two hundred bytes.
pub const AUTHORITY_KEY_BYTES_MAX: u64 = 4096;
/// The usual length of lines in PEM.
pub const PEM_LINE_CHARS: usize = 64;
/// A guest's list of trusted authorities; Debian's has 220 KB.
pub const TRUST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A greeting of TLS, with either side.
pub const TLS_DEADLINE: Duration = Duration::from_secs(30);
/// The buffer between the guest's connection and the end of its TLS.
pub const BETWEEN_BYTES: usize = 64 * 1024;
/// Bytes of a guest's requests that are filled before they are written.
pub const FILLED_AT_ONCE_BYTES: usize = 4 * 1024;
/// A head with secrets in it: they may be as long as the heads themselves.
pub const FILLED_HEAD_BYTES_MAX: usize = 256 * 1024;

/// Events of one sandbox's egress; those beyond are counted in the next.
pub const EVENTS_PER_SECOND: u32 = 20;
pub const EVENTS_BURST: u32 = 200;

/// The default of the operator's limit.
pub const CONNECTIONS_DEFAULT: usize = 256;
pub const CONNECTIONS_MAX: usize = 512;
pub const CONNECTIONS_PER_SECOND_DEFAULT: u32 = 50;
/// A burst is so many seconds' worth.
pub const BURST_SECONDS: u32 = 4;
pub const IDLE_DEFAULT: Duration = Duration::from_secs(600);

const _: () = assert!(GATES_MAX * 2 <= protocol::limits::REQUESTS_PENDING_MAX);
const _: () = assert!(GATES_MAX / PORTS_PER_NAME_MAX >= 32, "enough names for anything");
const _: () = assert!((CONNECTIONS_MAX + GATES_MAX) * 2 <= protocol::limits::STREAMS_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX <= protocol::egress::DATAGRAM_BYTES_MAX);
