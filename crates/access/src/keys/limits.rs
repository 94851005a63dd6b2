//! The limits of keys, each with its reason.

use std::time::Duration;

/// What a request may present as a key. A real one has some 250 bytes; other libraries add claims.
pub const KEY_BYTES_MAX: usize = 4 * 1024;
/// The longest label of a key: as long as a name may be.
pub const LABEL_CHARS_MAX: usize = 63;
/// Bytes of a signing secret: as many as the digest of HS256 has, the least that RFC 7518 allows.
pub const SECRET_BYTES: usize = 32;
/// Secrets that verify at once. Each costs a bad key one more signature to compare, and an operator who
/// rotates every week and keeps keys for a month needs five.
pub const SECRETS_MAX: usize = 8;
/// Keys that the index holds: one per person and program of a large team, many times over.
pub const KEYS_MAX: usize = 10_000;
/// SSH keys that stand for one key: those of a person's machines.
pub const SSH_KEYS_PER_KEY_MAX: usize = 16;
/// The longest line of an SSH key: the kinds that are accepted have some 250 characters, besides a comment.
pub const SSH_KEY_CHARS_MAX: usize = 1024;
/// The index on disk: [`KEYS_MAX`] entries of some 300 bytes with the longest names and labels, or of some 600
/// with a few SSH keys.
pub const INDEX_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The secrets on disk, which are a few hundred bytes.
pub const SECRETS_BYTES_MAX: u64 = 64 * 1024;
/// How long an expired key stays listed, so that "which key was that?" has an answer.
pub const EXPIRED_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// How often the files are checked for changes: a revocation takes effect within a second.
pub const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Peers whose bad keys are counted at once; what does not fit shares one count.
pub const BAD_KEY_PEERS_MAX: usize = 4 * 1024;
/// Bad keys of one peer that are answered as such, in a row: a script with a wrong key in its
/// environment sees the true reason for a while.
pub const BAD_KEYS_BURST: u32 = 50;
/// Bad keys of one peer per second after that. Nobody types faster, and nobody can guess a
/// signature of 256 bits at any speed: this spares the log and the peer's illusions.
pub const BAD_KEYS_PER_SECOND: u32 = 5;

const _: () = assert!(LOOK_PAUSE.as_millis() * 2 <= 1000, "a revocation acts within a second");
