//! Why a sandbox does not get its workspace, or its changes do not come back.

use std::io;
use std::path::PathBuf;

use super::s3::S3Error;
use agent_client::guest::GuestError;

/// See the module's description. Paths are relative to the workspace: where it is on the host is the
/// operator's to know.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("there is no workspace {name:?} for the namespace {namespace}")]
    Unknown { name: String, namespace: String },
    #[error("the workspace {name:?} cannot be used: {source}")]
    Unusable { name: String, source: io::Error },
    #[error(
        "the workspace {name:?} is reached through a symbolic link, which whoever may write there can lead elsewhere; name the directory itself"
    )]
    Link { name: String },
    #[error("the workspace {name:?} is of the kernel's own files, and those are nobody's work")]
    Kernels { name: String },
    #[error(
        "the workspace {name:?} cannot be mounted, for {} is this bridge's and within it, or around it; leave `mount` out, or name a directory beside it", own.display()
    )]
    HoldsBridge { name: String, own: PathBuf },
    #[error("the workspace could not be mounted: {0}")]
    Mount(io::Error),
    #[error(
        "the workspace was not mounted: the agent of this machine's initramfs is too old to know how; `just images` builds a newer one"
    )]
    OldAgent,
    #[error("the workspace holds more than {entries_max} entries, which is its limit")]
    TooManyEntries { entries_max: u64 },
    #[error(
        "the paths and links of the workspace have more than {bytes_max} bytes together, its limit with {entries_max} entries"
    )]
    NamesTooLong { bytes_max: u64, entries_max: u64 },
    #[error(
        "{path:?} has {bytes} bytes, and {bytes_max} are the limit of the workspace for a file"
    )]
    FileTooLarge { path: String, bytes: u64, bytes_max: u64 },
    #[error("the workspace holds more than {bytes_max} bytes, which is its limit")]
    TooLarge { bytes_max: u64 },
    #[error("{path:?} is deeper than {depth_max} directories")]
    TooDeep { path: String, depth_max: usize },
    #[error("{path:?}: {source}")]
    File { path: String, source: io::Error },
    #[error("{0}")]
    Bucket(Box<S3Error>),
    #[error("{path:?}: {source}")]
    Object { path: String, source: Box<S3Error> },
    #[error("{path:?} became shorter while it was sent")]
    Shrunk { path: String },
    #[error("the sandbox has no directory /workspace any more; nothing was changed on the host")]
    NoRoot,
    #[error("the sandbox sent {what}; nothing was changed on the host")]
    Malformed { what: &'static str },
    #[error("the sandbox does not give its files: {0}")]
    Guest(#[from] GuestError),
    #[error("what was exchanged could not be put down: {0}")]
    Manifest(io::Error),
    #[error("the exchange took longer than {seconds} s")]
    Overran { seconds: u64 },
    #[error("the sandbox has no workspace")]
    None,
    #[error("the sandbox ended before all of it had come back")]
    Ended,
}

impl WorkspaceError {
    pub(super) fn file(path: &[u8], source: impl Into<io::Error>) -> Self {
        Self::File { path: shown(path), source: source.into() }
    }
}

/// A path for a message. Its `Debug` escapes what a terminal would obey.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
