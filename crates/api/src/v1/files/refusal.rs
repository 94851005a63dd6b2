//! From a guest's refusal of work on files to what is said of it, with a hint where one helps.

use super::super::super::problem::Problem;
use agent_client::guest::GuestError;

/// No space is left.
const ENOSPC: i32 = nix::libc::ENOSPC;
/// The quota is used up.
const EDQUOT: i32 = nix::libc::EDQUOT;
/// Another file system.
const EXDEV: i32 = nix::libc::EXDEV;
/// The file system cannot be written.
const EROFS: i32 = nix::libc::EROFS;

pub fn refused(error: GuestError) -> Problem {
    let errno = match &error {
        GuestError::Fault(fault) => fault.errno,
        _ => None,
    };
    let problem = Problem::from(error);
    match errno {
        Some(ENOSPC | EDQUOT) => {
            problem.hint("remove files in the sandbox, or make a sandbox with more `scratch_bytes`")
        }
        Some(EXDEV) => problem.hint("copy it and remove the original"),
        Some(EROFS) => problem.hint("this part of the sandbox is read-only"),
        _ => problem,
    }
}
