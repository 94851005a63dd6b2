//! What a client reads when something could not be done: one sentence with the path and the
//! kernel's words.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use protocol::{Fault, FaultCode};

/// How much of a path a sentence shows, so that a long one does not push the reason out.
const SHOWN_CHARS_MAX: usize = 512;

/// Something that can be named in a sentence.
pub trait Named {
    fn name_bytes(&self) -> Cow<'_, [u8]>;
}

impl Named for Path {
    fn name_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_os_str().as_bytes())
    }
}

impl Named for [u8] {
    fn name_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

/// A path in quotes, short, without control characters.
pub fn quoted<N: Named + ?Sized>(path: &N) -> String {
    let bytes = path.name_bytes();
    let text = String::from_utf8_lossy(&bytes);
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{start:?}…")
}

/// The kernel's refusal to `what` a path: `cannot open "/x": Permission denied`.
pub fn refused<N: Named + ?Sized>(what: &str, path: &N, errno: Errno) -> Fault {
    let reason = match errno {
        Errno::ENOSPC => "no space is left on its file system",
        Errno::EDQUOT => "the quota on its file system is used up",
        other => other.desc(),
    };
    Fault::io(format!("cannot {what} {}: {reason}", quoted(path)), errno as i32)
}

/// The same for what the standard library reports.
pub fn refused_io<N: Named + ?Sized>(what: &str, path: &N, error: &std::io::Error) -> Fault {
    match error.raw_os_error() {
        Some(errno) => refused(what, path, Errno::from_raw(errno)),
        None => Fault::new(FaultCode::Io, format!("cannot {what} {}: {error}", quoted(path))),
    }
}

/// A refusal of ours: `"/x" is a directory`.
pub fn unfit<N: Named + ?Sized>(code: FaultCode, path: &N, why: &str) -> Fault {
    Fault::new(code, format!("{} {why}", quoted(path)))
}
