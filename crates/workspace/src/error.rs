//! The errors of workspaces: why a sandbox cannot get its workspace, or why its changes cannot be
//! copied back.

use std::io;
use std::path::PathBuf;

use super::s3::S3Error;
use agent_client::guest::GuestError;

/// Why a workspace failed. Paths are relative to the workspace, because only the operator may know
/// where it is on the host.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("the namespace {namespace} has no workspace {name:?}")]
    Unknown { name: String, namespace: String },
    #[error("the workspace {name:?} cannot be used: {source}")]
    Unusable { name: String, source: io::Error },
    #[error(
        "the path of the workspace {name:?} has a symbolic link, which others could redirect; name the directory itself"
    )]
    Link { name: String },
    #[error(
        "the workspace {name:?} is on a kernel file system such as /proc; name a directory on a disk"
    )]
    Kernels { name: String },
    #[error(
        "the workspace {name:?} cannot be mounted: it overlaps this bridge's own directory {}; leave `mount` out, or name another directory", own.display()
    )]
    HoldsBridge { name: String, own: PathBuf },
    #[error("the workspace could not be mounted: {0}")]
    Mount(io::Error),
    #[error(
        "the workspace was not mounted: the agent of this machine's initramfs is too old; build a newer one with `./do images`"
    )]
    OldAgent,
    #[error("the workspace has more than {entries_max} entries, its limit")]
    TooManyEntries { entries_max: u64 },
    #[error(
        "the paths and links of the workspace have more than {bytes_max} bytes together, its limit with {entries_max} entries"
    )]
    NamesTooLong { bytes_max: u64, entries_max: u64 },
    #[error("{path:?} has {bytes} bytes; the workspace's limit for a file is {bytes_max}")]
    FileTooLarge { path: String, bytes: u64, bytes_max: u64 },
    #[error("the workspace has more than {bytes_max} bytes, its limit")]
    TooLarge { bytes_max: u64 },
    #[error("{path:?} is more than {depth_max} directories deep")]
    TooDeep { path: String, depth_max: usize },
    #[error("{path:?}: {source}")]
    File { path: String, source: io::Error },
    #[error("{0}")]
    Bucket(Box<S3Error>),
    #[error("{path:?}: {source}")]
    Object { path: String, source: Box<S3Error> },
    #[error(
        "the namespace {namespace} has no workspace with the bucket and the prefix of {object:?} that allows this"
    )]
    NoBucket { object: String, namespace: String },
    #[error("there is an object {key:?} already, and it is not replaced")]
    ObjectTaken { key: String },
    #[error("there is no object {key:?} in the bucket")]
    NoObject { key: String },
    #[error("{path:?} became shorter while it was sent")]
    Shrunk { path: String },
    #[error("the sandbox no longer has a directory /workspace; nothing was changed on the host")]
    NoRoot,
    #[error("the sandbox sent {what}; nothing was changed on the host")]
    Malformed { what: &'static str },
    #[error("cannot read the sandbox's files: {0}")]
    Guest(#[from] GuestError),
    #[error("the record of the exchange could not be saved: {0}")]
    Manifest(#[source] io::Error),
    #[error("the exchange took longer than {seconds} s")]
    Overran { seconds: u64 },
    #[error("the sandbox has no workspace")]
    None,
    #[error("the sandbox ended before all files were copied back")]
    Ended,
}

impl WorkspaceError {
    pub(super) fn file(path: &[u8], source: impl Into<io::Error>) -> Self {
        Self::File { path: shown(path), source: source.into() }
    }
}

/// A path for a message. Its `Debug` escapes what would control a terminal.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
