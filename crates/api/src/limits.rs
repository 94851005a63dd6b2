//! Bounds of the server's door, each with its reason. Those that an operator may want to change are
//! in the configuration, and [`Limits`] carries them.

use std::time::Duration;

/// Bounds from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body of JSON. Files are not bounded by it.
    pub body_bytes_max: u64,
    /// Connections at once; when one more comes, the one that has been idle longest is closed.
    pub connections_max: usize,
    /// How long a connection may be idle. Clients reuse one for 15 s.
    pub connection_idle_max: Duration,
    /// From the first byte of a request's head to its last.
    pub head_time_max: Duration,
    /// Runs and commands at once, of all keys.
    pub runs_max: usize,
    /// The same of one key.
    pub runs_per_key_max: usize,
    /// What all calls may hold in memory; one key has a quarter of it.
    pub memory_bytes_max: u64,
    /// The deadline of a run that JSON-RPC asks for without one: below the 300 s after which its
    /// clients give up, so that they get the answer.
    pub rpc_run_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 * 1024 * 1024,
            connections_max: 4096,
            connection_idle_max: Duration::from_secs(75),
            head_time_max: Duration::from_secs(10),
            runs_max: 1024,
            runs_per_key_max: 512,
            memory_bytes_max: 1024 * 1024 * 1024,
            rpc_run_deadline: Duration::from_secs(240),
        }
    }
}

/// A request's line and headers together; a key and a path are some hundred bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers of one request.
pub const HEADERS_MAX: usize = 100;
/// How long a body may stall before its call is aborted.
pub const BODY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// What of the host's memory all calls may hold at most: an eighth.
pub const MEMORY_HOST_SHARE: u64 = 8;
/// One key has a quarter of the memory of all calls: it takes four to use all of it up.
pub const MEMORY_KEY_SHARE: u64 = 4;
/// Lost sandboxes that a node makes again at once, and how often one is tried.
pub const RETURNS_AT_ONCE: usize = 16;
pub const RETURN_ATTEMPTS: u32 = 12;
/// What a call takes of that at once. The first such piece of each call is not counted: 4096 busy
/// connections hold another 256 MiB of them at most, hardly any call is larger, and so a small one
/// is carried out whatever the others hold.
pub const MEMORY_STEP_BYTES: u64 = 64 * 1024;
/// What a stream may keep in memory for a client that does not read it, and what it takes of its key's
/// memory when it begins: what waits here, what the connection has taken of it, and its tasks.
pub const STREAM_BYTES: usize = 128 * 1024;
/// A value of a stream that is larger in JSON is counted beside that until it is sent.
pub const STREAM_VALUE_BYTES: usize = 32 * 1024;
/// What is still read of a body that is refused, so that the client gets to read why. A client that
/// sends more finds its connection closed.
pub const REFUSED_BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The same from a client without a valid key.
pub const STRANGERS_BODY_BYTES_MAX: u64 = 1024 * 1024;
/// How long that may take.
pub const REFUSED_BODY_TIME_MAX: Duration = Duration::from_secs(5);
/// Pieces of an answer that wait for the client; a slow one holds up its own call alone.
pub const CHUNKS_WAITING_MAX: usize = 32;
/// The same in bytes: what a slow client costs, beside as much again in its connection's own buffer.
pub const CHUNKS_BYTES_MAX: usize = 32 * 1024;
/// A chunk of an answer from this size on is sent as it is. Smaller ones that wait are copied into one,
/// which costs less than a frame for each.
pub const JOINED_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take nothing of what is sent to it, before its connection is given up: a
/// stream to it keeps places here and in a guest.
pub const WRITE_PAUSE_MAX: Duration = Duration::from_secs(600);
/// A connection that is silent so long is asked whether the other end is still there.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// The same of files and archives, whose pieces are a chunk of the guest's link each: one is sent
/// while the next arrives.
pub const PIECES_WAITING_MAX: usize = 2;
/// The pause after the kernel refused a connection, for want of descriptors as a rule.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Threads that serve connections at most: more processors are left to the sandboxes.
pub const SERVING_THREADS_MAX: usize = 16;
/// How long a client may take to read that it is not served.
pub const TURNED_AWAY_MAX: Duration = Duration::from_millis(500);
/// How long a TLS handshake may take.
pub const TLS_TIME_MAX: Duration = Duration::from_secs(10);
/// One message of a WebSocket from a client: a paste into a terminal, or a program to run.
pub const SOCKET_MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Between two questions whether a WebSocket's client is still there; proxies close what is silent
/// for a minute.
pub const SOCKET_PING_PAUSE: Duration = Duration::from_secs(25);
/// How long a WebSocket's client may be silent in spite of them.
pub const SOCKET_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Pings that a WebSocket's client may send between two of ours. Each is answered, and the answers
/// wait in memory for a client that does not read them.
pub const SOCKET_PINGS_MAX: u32 = 1000;
/// How long a WebSocket may take to close in order.
pub const SOCKET_CLOSE_MAX: Duration = Duration::from_secs(2);
/// The text of a refusal: some lines.
pub const PROBLEM_CHARS_MAX: usize = 1000;
/// A client's name for its request, which is copied into logs.
pub const REQUEST_ID_BYTES_MAX: usize = 64;
/// The longest deadline that a call may ask for: a day is surely a mistake of units.
pub const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);
/// What a stream that knows of its deadline has to say so, before it is cut off.
pub const DEADLINE_WORD: Duration = Duration::from_millis(500);
/// How long before a call's deadline the keeping of artifacts ends, so that the answer still comes.
pub const ANSWER_MARGIN: Duration = Duration::from_millis(100);
/// What is kept of each output of a program whose whole result is asked for.
pub const OUTPUT_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;
/// The longest deadline of a program. More is surely a mistake of units, and no clock overflows.
pub const TIMEOUT_MS_MAX: u64 = 30 * 24 * 3600 * 1000;
/// How long a call whose agent is gone waits for what its sandbox's record says of that.
pub const END_KNOWN_MAX: Duration = Duration::from_secs(2);
/// Idle connections that are closed when the host has no more descriptors: room for one call with all
/// that it opens.
pub const GIVE_WAY_AT_ONCE: usize = 16;
/// How much sooner than its call's deadline a program is ended, so that the answer says how. Of a
/// short deadline it is a quarter.
pub const DEADLINE_MARGIN: Duration = Duration::from_millis(250);
/// What a client may say of its call, to do it once alone.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Calls that are remembered by their idempotency keys.
pub const IDEMPOTENT_CALLS_MAX: usize = 4096;
/// How long they are.
pub const IDEMPOTENT_CALL_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long packages for a new sandbox may take to install.
pub const INSTALL_DEADLINE: Duration = Duration::from_secs(15 * 60);
/// An answer that is remembered; a larger one is not given twice.
pub const IDEMPOTENT_ANSWER_BYTES_MAX: usize = 256 * 1024;
/// All answers together, in memory and on disk; the oldest make room. Most have less than 2 KiB, so that
/// few calls with large answers do not push the others out before their time.
pub const IDEMPOTENT_ANSWERS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long an agent is waited for that another node's operator connects to.
pub const AGENT_DIAL_MAX: Duration = Duration::from_secs(5);
/// How long a connection to another node may take.
pub const FORWARD_CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long one node is waited for when all are asked: a list names the one that is late.
pub const FORWARD_ANSWER_MAX: Duration = Duration::from_secs(5);
/// The longest answer of one node to that: more than the largest page of sandboxes has.
pub const FORWARD_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest line of a stream of another node: an event has some kilobytes.
pub const FORWARD_LINE_BYTES_MAX: usize = 1024 * 1024;
/// How long a stream of another node that has ended is left alone, before it is asked for again.
pub const FORWARD_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Nodes that are asked at once for one list.
pub const FORWARD_ASKED_AT_ONCE: usize = 16;
/// Nodes that a place in the events of all of them names: a query has so much room.
pub const RESUME_NODES_MAX: usize = 1_024;
/// Silent nodes that a header names.
pub const UNANSWERED_NAMED_MAX: usize = 32;
/// A body of another node up to this length is sent on together with its head, if it comes within so long.
pub const FORWARD_WHOLE_BYTES_MAX: u64 = 64 * 1024;
pub const FORWARD_WHOLE_PAUSE_MAX: Duration = Duration::from_millis(5);
/// Connections from one thread to one node that wait for the next call.
pub const FORWARD_IDLE_MAX: usize = 64;
/// Bytes of a body that is kept until a node has taken it, so that it can be sent to another one.
pub const RECALLED_BODY_BYTES_MAX: u64 = 64 * 1024;
/// How long a client may pause in a body that goes to another node, which has its own bound, a shorter one.
pub const FORWARD_BODY_PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Keys whose rates are remembered; those that are idle are forgotten first.
pub const KEYS_RATED_MAX: usize = 16 * 1024;
/// The address under which bad keys from a Unix socket are counted.
pub const STRANGER: [u8; 4] = [127, 0, 0, 1];
/// Namespaces and keys whose caps are in a scrape.
pub const SCRAPE_SCOPES_MAX: usize = 100;

/// Sandboxes that have series of their own in a scrape: 15 each, and Prometheus keeps every one. The rest are
/// counted.
pub const SCRAPE_SANDBOXES_MAX: usize = 2_000;

/// How long a scrape waits for one sandbox.
pub const SCRAPE_GUEST_MAX: Duration = Duration::from_secs(1);
/// While scrapes come, sandboxes are asked for their samples so often, beside the scrapes.
pub const SAMPLES_EVERY: Duration = Duration::from_secs(5);
/// Sandboxes that are asked at the same time at least, and the pause after them, so that nobody waits
/// behind more than a few.
pub const SAMPLES_AT_ONCE_MIN: usize = 8;
pub const SAMPLES_PAUSE: Duration = Duration::from_millis(40);
/// So many turns, each of as many sandboxes as it takes, and all have been asked: two seconds of pauses.
pub const SAMPLES_TURNS_MAX: usize = 50;
/// A sample that is older is forgotten when its agent does not answer, and the next scrape asks for it.
pub const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);
/// Nobody is asked when the last scrape was so long ago: scrapers come every minute at least.
pub const SAMPLES_KEPT_FOR: Duration = Duration::from_secs(150);

const _: () = assert!(SOCKET_PING_PAUSE.as_secs() * 2 < SOCKET_SILENCE_MAX.as_secs());
/// The head of one part of a form.
pub const PART_HEAD_BYTES_MAX: usize = 16 * 1024;
/// A file of accounts that is larger is not read.
pub const PASSWD_BYTES_MAX: usize = 1024 * 1024;
/// How long a program may take to receive what was typed.
pub const TYPED_MAX: Duration = Duration::from_secs(60);
/// How often input is tried that another writer holds at the moment.
pub const INPUT_PAUSE: Duration = Duration::from_millis(5);
