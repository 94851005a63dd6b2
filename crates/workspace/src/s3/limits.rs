//! Limits of the exchange with a bucket, each with its reason.

use std::time::Duration;

/// A name of a bucket, as S3 bounds it.
pub const BUCKET_CHARS_MIN: usize = 3;
pub const BUCKET_CHARS_MAX: usize = 63;
/// A region's name: a word of a configuration.
pub const REGION_CHARS_MAX: usize = 63;
/// A key, with the prefix, as S3 bounds it.
pub const KEY_BYTES_MAX: usize = 1024;

/// The head of an answer, and the lines in it.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
pub const HEADERS_MAX: usize = 100;
/// A page of a list: a thousand keys, with each of their bytes escaped.
pub const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Every other document.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// Nesting of elements: S3's documents have four levels.
pub const XML_DEPTH_MAX: usize = 16;
/// The code of an error that is shown.
pub const CODE_CHARS_MAX: usize = 64;
/// Connections that wait for the next request.
pub const IDLE_CONNECTIONS_MAX: usize = 4;
/// Objects that travel at once.
pub const AT_ONCE: usize = 4;

/// Files that are larger go up in parts: a part that fails is sent again, and not the whole.
pub const MULTIPART_ABOVE: u64 = 16 * 1024 * 1024;
/// The usual part; S3 takes none below 5 MiB but the last.
pub const PART_BYTES: u64 = 8 * 1024 * 1024;
/// The parts of one object that S3 accepts.
pub const PARTS_MAX: u64 = 10_000;
/// A piece on its way between disk and connection.
pub const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that wait there.
pub const PIECES_WAITING_MAX: usize = 4;

/// Attempts at one request, the first included.
pub const ATTEMPTS_MAX: u32 = 4;
/// The pause before the second attempt; each further one is twice as long.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(250);
/// The longest pause that a server may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Until there is a connection, TLS included.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// From the end of a request to the head of its answer.
pub const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// The next piece of an answer.
pub const STALL_DEADLINE: Duration = Duration::from_secs(30);
/// A body that goes up slower than that is given up.
pub const UPLOAD_BYTES_PER_SECOND_MIN: u64 = 64 * 1024;
/// Uploads that are recorded to be aborted.
pub const UPLOADS_MAX: usize = 64;
/// Contents of one path that were written without an answer.
pub const INTENDED_MAX: usize = 16;
/// Consecutive failures before the remaining files are left for the next time.
pub const FAILURES_IN_ROW_MAX: u32 = 8;
/// A name in a document: S3 has none of half that length.
pub const XML_NAME_BYTES_MAX: usize = 64;
/// Rounds of looking and writing, when others write the same object at the same time.
pub const ROUNDS_MAX: u32 = 3;
/// The pause before retrying what the bucket did not take; each further one is twice as long.
pub const AGAIN_FIRST: Duration = Duration::from_secs(5);
pub const AGAIN_MAX: Duration = Duration::from_secs(300);
/// How long to wait for the files of a sandbox while another exchange holds them.
pub const HOLD_DEADLINE: Duration = Duration::from_secs(10);
/// How often to check whether they were released.
pub const HOLD_LOOK: Duration = Duration::from_millis(20);

const _: () = assert!(MULTIPART_ABOVE >= PART_BYTES, "there are two parts at least");
