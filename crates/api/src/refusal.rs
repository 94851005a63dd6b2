//! Refusals of work on files.

use agent_client::guest::GuestError;
use sandbox::refusal::Refusal;

/// No space is left.
const ENOSPC: i32 = nix::libc::ENOSPC;
/// The quota is used up.
const EDQUOT: i32 = nix::libc::EDQUOT;
/// Another file system.
const EXDEV: i32 = nix::libc::EXDEV;
/// The file system cannot be written.
const EROFS: i32 = nix::libc::EROFS;

/// A refusal of work on files, with a hint where one helps.
pub fn of_file(error: GuestError) -> Refusal {
    let errno = match &error {
        GuestError::Fault(fault) => fault.errno,
        _ => None,
    };
    let refusal = Refusal::from(error);
    match errno {
        Some(ENOSPC | EDQUOT) => {
            refusal.hint("remove files in the sandbox, or make a sandbox with more `scratch_bytes`")
        }
        Some(EXDEV) => refusal.hint("copy it and remove the original"),
        Some(EROFS) => refusal.hint("this part of the sandbox is read-only"),
        _ => refusal,
    }
}
