//! The limits of the door for SSH, each with its reason.

use std::time::Duration;

/// What the operator sets of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once: each is one descriptor and a few tasks.
    pub connections_max: usize,
    /// Connections of one key, so that one tenant does not take the places of all.
    pub connections_per_key_max: usize,
    /// How long a connection may be without a channel; `None` for no limit.
    pub idle_max: Option<Duration>,
}

/// Connections that have not logged in: strangers must not take the places of those who may come in.
pub const STRANGERS_MAX: usize = 128;
/// Channels of one connection: an editor opens some ten, and each may be a program.
pub const CHANNELS_MAX: usize = 20;
/// Refused logins of one connection. An agent offers its keys one by one, and each that is unknown counts.
pub const LOGINS_MAX: usize = 6;
/// From the connection to the login: the person may have to type the passphrase of a key.
pub const LOGIN_GRACE: Duration = Duration::from_secs(30);
/// The pause before a refused login is answered, whatever was wrong with it.
pub const REFUSAL_PAUSE: Duration = Duration::from_millis(20);
/// How often it is checked that the key of a connection is still valid: a revocation acts within a second.
pub const READMIT_PAUSE: Duration = Duration::from_millis(500);
/// How long a client may take to read why its connection ends.
pub const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// A client that has sent nothing for so long is asked whether it is there.
pub const KEEPALIVE_PAUSE: Duration = Duration::from_secs(30);
/// Questions without any answer after which the client is gone.
pub const KEEPALIVES_MAX: usize = 3;
/// How long a client may take nothing from its connection.
pub const STALL_MAX: Duration = Duration::from_secs(300);
/// The pause after the kernel refused a connection, usually because descriptors ran out.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The window of a channel: what a client may send ahead. Enough for a fast link, and little beside the memory
/// of a bridge.
pub const WINDOW_BYTES: u32 = 512 * 1024;
/// The window while programs do not take what has come. It is not zero, because only what a client sends opens
/// it again.
pub const WINDOW_BYTES_FULL: u32 = 16;
/// Bytes of one connection that wait for programs, above which its windows close.
pub const INPUT_BYTES_FULL: usize = 1 << 20;
/// Bytes below which they open again.
pub const INPUT_BYTES_LOW: usize = INPUT_BYTES_FULL / 2;
/// How long a connection is not read while its windows are closed. At this pace the small windows bring less
/// than a kilobyte a second, and what a client says beside its bytes still comes.
pub const FULL_PAUSE: Duration = Duration::from_millis(20);
/// Bytes that wait at most: what the windows of all channels had room for when they closed, and hours of the
/// small windows. A client that sends more ignores its windows.
pub const INPUT_BYTES_MAX: usize = INPUT_BYTES_FULL + (CHANNELS_MAX + 4) * WINDOW_BYTES as usize;
/// What a piece of input costs besides its bytes.
pub const PIECE_BYTES: usize = 64;
/// Messages on their way to the client, of all channels of a connection together.
pub const MESSAGES_MAX: usize = 8;
/// The largest packet: what the standard wants every end to take.
pub const PACKET_BYTES_MAX: u32 = 32 * 1024;

/// Variables that a client may set for one program, and the bytes of all of them.
pub const VARIABLES_MAX: usize = 64;
pub const VARIABLES_BYTES_MAX: usize = 32 * 1024;
/// Signals and sizes of a window that wait for a program.
pub const CONTROLS_MAX: usize = 16;

/// The largest packet of SFTP, as OpenSSH has it.
pub const SFTP_PACKET_BYTES_MAX: usize = 256 * 1024;
/// Open files and directories of one SFTP session.
pub const SFTP_HANDLES_MAX: usize = 64;
/// What one read returns at most.
pub const SFTP_READ_BYTES_MAX: usize = 64 * 1024;
/// Names in one answer about a directory.
pub const SFTP_NAMES_MAX: usize = 64;
/// What is kept of what a program says that changes a file's attributes.
pub const TOOL_BYTES_MAX: usize = 512;
