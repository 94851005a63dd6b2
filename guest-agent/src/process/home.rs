//! The default working directory: the one that the boot makes for it, which belongs to the first user who
//! starts there. An agent without a boot has none, and uses `/`.
//!
//! Only `process` calls it, on a thread: what is mounted there may not answer.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};

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
