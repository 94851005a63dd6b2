//! Limits of what a registry may use: bytes, memory and time. A registry may be hostile.

use std::time::Duration;

/// Layers of an image. Builders stop at 127.
pub const LAYERS_MAX: usize = 512;
/// All layers of an image together, as they travel.
pub const IMAGE_BYTES_MAX: u64 = 256 << 30;
/// Indexes inside of indexes: one is unusual, more nobody makes.
pub const INDEX_DEPTH_MAX: usize = 2;
/// Blobs of one pull that travel at once. More gain nothing where one source sends them all.
pub const LAYERS_AT_ONCE: usize = 3;

/// The head of an answer, and the lines in it.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
pub const HEADERS_MAX: usize = 100;
/// An answer of a token server.
pub const TOKEN_BYTES_MAX: u64 = 256 * 1024;
/// What a registry says about an error, read and shown.
pub const ERROR_BYTES_MAX: u64 = 64 * 1024;
pub const ERROR_CHARS_SHOWN_MAX: usize = 300;
/// Platforms of an index that are listed when none fits.
pub const PLATFORMS_SHOWN_MAX: usize = 32;
/// From one place to the next before there is an answer.
pub const REDIRECTS_MAX: usize = 5;
/// Connections to one place that wait for the next request.
pub const IDLE_CONNECTIONS_MAX: usize = 4;
/// What one piece of a blob has when it is handed to the disk.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Attempts without enough to show for them, the first included.
pub const ATTEMPTS_MAX: u32 = 5;
/// What an attempt brings that does not count as one of them.
pub const ATTEMPT_BYTES_ENOUGH: u64 = 1 << 20;
/// The pause before the second attempt; each further one is twice as long.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(500);
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// As long as a registry may tell us to wait.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Until there is a connection, TLS included.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(15);
/// From a request to the end of the answer's head.
pub const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// A body brings [`STALL_BYTES`] or its end within this, again and again. Who sends a byte now and
/// then is as slow as who sends none.
pub const STALL_DEADLINE: Duration = Duration::from_secs(30);
pub const STALL_BYTES: u64 = 16 * 1024;

/// How long a token holds whose maker does not say, as the specification has it.
pub const TOKEN_LIFE_DEFAULT: Duration = Duration::from_secs(60);
/// A token is not used when so little of its life is left: clocks differ, requests travel.
pub const TOKEN_LIFE_MARGIN: Duration = Duration::from_secs(10);
/// No token is trusted for longer, whatever its maker says.
pub const TOKEN_LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A file of credentials.
pub const AUTH_FILE_BYTES_MAX: u64 = 1 << 20;
/// What a program that keeps credentials may answer, and how long it may take.
pub const HELPER_BYTES_MAX: u64 = 64 * 1024;
pub const HELPER_DEADLINE: Duration = Duration::from_secs(15);

const _: () = assert!(TOKEN_LIFE_MARGIN.as_secs() < TOKEN_LIFE_DEFAULT.as_secs(), "used at all");
