//! The default working directory: the one that the boot makes for it, which belongs to the first user who
//! starts there. An agent without a boot has none, and uses `/`. It is also the home directory of accounts
//! that have none.
//!
//! Only `process` calls it, on a thread: what is mounted there may not answer.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use protocol::boot::HOME;

use crate::sys::spawn::Identity;

/// The directory for programs of this user; `None` is the agent's own.
pub fn of(user: Option<&Identity>) -> CString {
    let found = fs::symlink_metadata(HOME).ok().filter(fs::Metadata::is_dir);
    let Some(found) = found else { return c"/".to_owned() };
    if let Some(identity) = user.filter(|_| found.uid() == 0) {
        // One that cannot be given away can still be begun in.
        let _ = lchown(HOME, Some(identity.uid), Some(identity.gid));
    }
    CString::new(HOME).expect("it is a constant without a zero byte")
}

/// `HOME` of a program whose account names the directory `named`. Where that is `/` or not there, as with
/// `nobody` and with numbers that no account has, it is the default working directory: programs such as
/// npm and pip write to it. Root and the agent's own user have what is named.
pub fn variable(named: &CStr, user: Option<&Identity>) -> CString {
    let is_kept = user.is_none_or(|user| user.uid == 0)
        || (named != c"/" && Path::new(OsStr::from_bytes(named.to_bytes())).is_dir());
    let home = if is_kept { named.to_owned() } else { of(user) };
    CString::new([b"HOME=", home.as_bytes()].concat()).expect("neither has a zero byte")
}
