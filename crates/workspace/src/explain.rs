//! Explains why the host could not write a file of a workspace.

use std::io;

use rustix::io::Errno;

/// Whether another try may succeed although nothing has changed in the guest.
pub fn may_pass(error: &io::Error) -> bool {
    let passing = [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Explains why the host refused something.
pub fn explain(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP | Errno::XDEV) => "it leads through a link on the host".to_owned(),
        Some(Errno::NOTDIR | Errno::EXIST) => "the host has another kind of file there".to_owned(),
        _ => format!("the host cannot write it: {error}"),
    }
}
