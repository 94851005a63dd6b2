//! Limits on what a registry may use: bytes, memory and time. A registry may be hostile.

use std::time::Duration;

/// Layers of an image. Builders stop at 127.
pub const LAYERS_MAX: usize = 512;
/// All layers of an image together, compressed.
pub const IMAGE_BYTES_MAX: u64 = 256 << 30;
/// Nested indexes: one is unusual, more never occur.
pub const INDEX_DEPTH_MAX: usize = 2;
/// Blobs of one pull that travel at once. More gain nothing where one source sends them all.
pub const LAYERS_AT_ONCE: usize = 3;

/// The head of an answer, and the lines in it.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
pub const HEADERS_MAX: usize = 100;
/// An answer of a token server.
pub const TOKEN_BYTES_MAX: u64 = 256 * 1024;
/// How much of an error response is read and shown.
pub const ERROR_BYTES_MAX: u64 = 64 * 1024;
pub const ERROR_CHARS_SHOWN_MAX: usize = 300;
/// Platforms of an index that are listed when none fits.
pub const PLATFORMS_SHOWN_MAX: usize = 32;
/// From one place to the next before there is an answer.
pub const REDIRECTS_MAX: usize = 5;
/// Connections to one place that wait for the next request.
pub const IDLE_CONNECTIONS_MAX: usize = 4;
/// The size of a blob's piece that is handed to the disk.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Attempts without enough progress, the first included.
pub const ATTEMPTS_MAX: u32 = 5;
/// Bytes after which an attempt does not count.
pub const ATTEMPT_BYTES_ENOUGH: u64 = 1 << 20;
/// The pause before the second attempt; each further one is twice as long.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(500);
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause that a registry may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Until there is a connection, TLS included.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(15);
/// From a request to the end of the answer's head.
pub const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// A body brings [`STALL_BYTES`] or its end within this, again and again. Who sends a byte now and
/// then is as slow as who sends none.
pub const STALL_DEADLINE: Duration = Duration::from_secs(30);
pub const STALL_BYTES: u64 = 16 * 1024;

/// The lifetime of a token without one, by the specification.
pub const TOKEN_LIFE_DEFAULT: Duration = Duration::from_secs(60);
/// A token is not used when so little of its life is left: clocks differ, requests travel.
pub const TOKEN_LIFE_MARGIN: Duration = Duration::from_secs(10);
/// No token is used for longer, even if it says so.
pub const TOKEN_LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A file of credentials.
pub const AUTH_FILE_BYTES_MAX: u64 = 1 << 20;
/// Limits of a credential helper: its output and its time.
pub const HELPER_BYTES_MAX: u64 = 64 * 1024;
pub const HELPER_DEADLINE: Duration = Duration::from_secs(15);

const _: () = assert!(TOKEN_LIFE_MARGIN.as_secs() < TOKEN_LIFE_DEFAULT.as_secs(), "used at all");
