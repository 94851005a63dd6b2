//! The message of a failed operation: one sentence with the path and the kernel's error.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use protocol::{Fault, FaultCode};

use crate::lookup::Refused;

/// How much of a path a message shows, so that a long one does not hide the reason.
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

/// A quoted path, short, without control characters.
pub fn quoted<N: Named + ?Sized>(path: &N) -> String {
    let bytes = path.name_bytes();
    let text = String::from_utf8_lossy(&bytes);
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{start:?}…")
}

/// The refusal to `what` a path: `cannot open "/x": Permission denied`.
pub fn refused<N: Named + ?Sized>(what: &str, path: &N, why: impl Into<Refused>) -> Fault {
    refused_because(what, &quoted(path), why.into())
}

fn refused_because(what: &str, path: &str, why: Refused) -> Fault {
    let errno = match why {
        Refused::Errno(errno) => errno,
        Refused::KernelFileSystem(name) => {
            let message = format!(
                "{path} is on a kernel file system ({name}), which the files API does not serve; \
                 use a program in the sandbox, such as cat"
            );
            return Fault::new(FaultCode::Denied, message);
        }
    };
    let reason = match errno {
        Errno::ENOSPC => "no space is left on its file system",
        Errno::EDQUOT => "the quota on its file system is used up",
        Errno::ELOOP => {
            let message = format!(
                "cannot {what} {path}: it leads through too many symlinks, or through a link of \
                 /proc to what a process has open"
            );
            let fault = Fault::new(FaultCode::Denied, message);
            return Fault { errno: Some(errno as i32), ..fault };
        }
        other => other.desc(),
    };
    Fault::io(format!("cannot {what} {path}: {reason}"), errno as i32)
}

/// The refusal where no symlink is followed, and no other mount is entered.
pub fn refused_unlinked<N: Named + ?Sized>(what: &str, path: &N, why: impl Into<Refused>) -> Fault {
    match why.into() {
        Refused::Errno(Errno::ELOOP) => {
            let why = format!("leads through a symlink, where none is followed to {what} it");
            unfit(FaultCode::Denied, path, &why)
        }
        Refused::Errno(Errno::EXDEV) => unfit(FaultCode::Denied, path, "lies on another mount"),
        other => refused(what, path, other),
    }
}

/// The refusal for an error of the standard library.
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
