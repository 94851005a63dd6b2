//! Errors of the boot, each as one sentence that a newcomer can act on.
//!
//! The host receives the text in a `goodbye` and shows it to the person whose sandbox did not start.
//! Each text names the operation, the kernel's reason, and the remedy if there is one.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::host::BootFrameError;

/// Why the sandbox could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{what} failed: {source}{}", namespace_hint(.source))]
    Namespace { what: &'static str, source: io::Error },
    #[error("no range of user ids could be taken for the sandbox: {0}")]
    Ids(io::Error),
    #[error("this kernel lets no user namespace be made here: {0}")]
    NoUsers(io::Error),
    #[error("the process that becomes the sandbox could not be forked: {0}")]
    Fork(io::Error),
    #[error("the supervisor of the sandbox ended before the sandbox began")]
    Orphaned,
    #[error("{what} failed: {source}")]
    Supervision { what: &'static str, source: io::Error },
    #[error(transparent)]
    Boot(#[from] BootError),
}

/// Why a step of stage 1 failed.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("the root directory {} cannot be opened: {source}", path.display())]
    Root { path: PathBuf, source: io::Error },
    #[error("the overlay over {} cannot be mounted: {source}{}", root.display(), overlay_hint(.source))]
    Overlay { root: PathBuf, source: io::Error },
    #[error("{action} {} failed: {source}", path.display())]
    Path { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{what} failed: {source}")]
    Call { what: &'static str, source: io::Error },
    #[error(
        "the sandbox's users cannot be kept apart from the host's, as this host or its configuration \
         asks for: {why}"
    )]
    Users { why: String },
    #[error("the host sent no configuration: {error}")]
    NoConfiguration { error: BootFrameError },
}

impl BootError {
    /// Wraps the error of an operation on a path.
    pub fn path<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Path { action, path, source: source.into() }
    }

    /// Wraps the error of an operation without a path.
    pub fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Call { what, source: source.into() }
    }
}

/// The switches by which distributions forbid namespaces to ordinary users.
fn namespace_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC) => {
            " (no more namespaces are allowed: raise the limits in /proc/sys/user, \
             or max_user_namespaces there if it is 0)"
        }
        Some(Errno::EPERM | Errno::EACCES) => {
            " (run as root, or let ordinary users make namespaces: set \
             kernel.unprivileged_userns_clone to 1 on Debian, \
             kernel.apparmor_restrict_unprivileged_userns to 0 on Ubuntu; within docker, use \
             --privileged or --security-opt seccomp=unconfined)"
        }
        Some(Errno::EINVAL | Errno::ENOSYS) => " (this kernel is built without this namespace)",
        _ => "",
    }
}

fn overlay_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENODEV) => " (this kernel has no overlayfs: try `modprobe overlay` as root)",
        Some(Errno::EPERM) => {
            " (an ordinary user may mount an overlay since Linux 5.11: run as root, or on a newer \
             kernel)"
        }
        Some(Errno::EINVAL | Errno::ESTALE) => {
            " (its file system cannot be a lower layer; use a directory on ext4, xfs, btrfs or \
             tmpfs)"
        }
        _ => "",
    }
}
