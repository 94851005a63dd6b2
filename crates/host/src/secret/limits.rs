//! The limits of secrets, each with its reason.

use std::time::Duration;

/// A value: keys, tokens and whole certificates fit, and the environment of a sandbox still holds
/// several of them.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// A logical name, and a variable's: as long as other names of this bridge.
pub const NAME_CHARS_MAX: usize = 63;
/// Secrets of one sandbox: nobody needs more, and each may cost the start of a program.
pub const SECRETS_PER_SANDBOX_MAX: usize = 32;
/// How long a program may take to print a secret: it may ask another host, and somebody waits for
/// the sandbox.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(10);
/// How long reading a file may take: a named pipe without a writer has no end.
pub const FILE_DEADLINE: Duration = Duration::from_secs(5);
