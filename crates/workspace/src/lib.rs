//! Workspaces: a directory of the host, or files of a bucket, of which a sandbox has a copy at `/workspace`, and whose
//! changes come back; or a directory that the sandbox has itself.
//!
//! ```text
//!  configuration ──▶ Workspaces ──find(namespace, name)──▶ Workspace (directory, policy)
//!                                                              │
//!   host directory ◀── temporary, fsync, rename ── take ◀── Mirror ──▶ send ── tar ──▶ /workspace
//!        [`tree`]                                  ▲           │
//!                                                  └─ manifest, journal: what both had last
//! ```
//!
//! A copy travels through the agent, so that it is the same on each kind of machine, and the host decides
//! about every file that comes back. The guest is hostile: its names, sizes and links are checked here, the
//! host's tree is walked beneath its own descriptor and through no link, and a file appears under its name
//! complete or not at all. `sandbox` calls this and decides when; this crate knows neither sandboxes nor
//! callers. A mount is made by the machine: this crate supplies its directory and what in it may be written.

#![forbid(unsafe_code)]

mod cancellation;
mod delivery;
mod error;
mod explain;
mod guest;
pub mod limits;
mod manifest;
mod mirror;
mod outcome;
mod place;
mod policy;
mod report;
pub mod s3;
mod send;
mod take;
mod transfer;
mod tree;
mod usage;
pub mod volume;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::WorkspaceError;
pub use mirror::{Mirror, MirrorSettings};
pub use outcome::ExchangeOutcome;
pub use policy::{Policy, parse_prefix};
pub use report::{Conflict, RefusedPath, Report};
use s3::Staging;
pub use send::clear;
pub use transfer::TransferCounter;
pub use tree::sweep;

use host::secret::{Reach, Secrets};
use limits::NAME_CHARS_MAX;

/// Where a sandbox finds its workspace.
pub const WORKSPACE: &str = "/workspace";

/// A workspace as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Empty for a bucket.
    pub path: PathBuf,
    pub bucket: Option<s3::Bucket>,
    pub reach: Reach,
    pub policy: Policy,
}

/// One that a sandbox has.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// The directory of the files; a bucket's files get a place when a sandbox has them.
    pub path: PathBuf,
    pub bucket: Option<s3::BucketAccess>,
    pub policy: Policy,
}

/// All workspaces of one bridge. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Workspaces {
    entries: Arc<BTreeMap<String, Entry>>,
    /// The source of buckets' keys.
    secrets: Secrets,
    carried: TransferCounter,
    /// The bridge's own files, beyond its directories.
    own: Arc<[PathBuf]>,
}

impl Workspaces {
    pub fn new(entries: BTreeMap<String, Entry>, secrets: Secrets) -> Self {
        let carried = TransferCounter::default();
        Self { entries: Arc::new(entries), secrets, carried, own: Arc::default() }
    }

    /// Adds files and directories that belong to the bridge, and that no mount may contain.
    #[must_use]
    pub fn apart_from(mut self, own: Vec<PathBuf>) -> Self {
        self.own = own.into();
        self
    }

    pub fn own(&self) -> impl Iterator<Item = &Path> {
        self.own.iter().map(PathBuf::as_path)
    }

    /// Counts the transfers of all workspaces.
    pub fn carried(&self) -> &TransferCounter {
        &self.carried
    }

    /// The workspace that a sandbox of this namespace gets under this name. An absolute path names
    /// itself: the caller decides who may use one. Reads no file.
    pub fn find(&self, namespace: &str, name: &str) -> Result<Workspace, WorkspaceError> {
        if is_path(name) {
            let (path, policy) = (PathBuf::from(name), Policy::default());
            return Ok(Workspace { path, bucket: None, policy });
        }
        // One of another namespace is as unknown as one that is not there.
        let entry = self.entries.get(name).filter(|entry| entry.reach.covers(namespace));
        let entry = entry.ok_or_else(|| WorkspaceError::Unknown {
            name: name.chars().take(NAME_CHARS_MAX).collect(),
            namespace: namespace.to_owned(),
        })?;
        let (path, policy) = (entry.path.clone(), entry.policy.clone());
        Ok(Workspace { path, bucket: self.access(name), policy })
    }

    /// The names of all.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The bucket of a workspace, whosever it is.
    fn access(&self, name: &str) -> Option<s3::BucketAccess> {
        let bucket = self.entries.get(name)?.bucket.clone()?;
        Some(s3::BucketAccess { bucket, secrets: self.secrets.clone() })
    }
}

impl Workspace {
    /// Refuses to mount a directory that contains one of these or lies in one: their reader would command
    /// other sandboxes. A copy contains no sockets, and is the user's choice.
    pub fn check_apart<'a>(
        &self,
        name: &str,
        own: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), WorkspaceError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let here = real(&self.path);
        let meets = |own: &&Path| {
            let own = real(own);
            own.starts_with(&here) || here.starts_with(&own)
        };
        match own.into_iter().find(meets).filter(|_| self.policy.mount) {
            Some(own) => {
                Err(WorkspaceError::HoldsBridge { name: name.to_owned(), own: own.to_owned() })
            }
            None => Ok(()),
        }
    }
}

/// Whether a directory of the host is meant and no name of the configuration.
pub fn is_path(name: &str) -> bool {
    Path::new(name).is_absolute()
}

/// Whether a workspace may be called that: as a secret may.
pub fn is_name(text: &str) -> bool {
    host::secret::is_name(text)
}

#[cfg(test)]
mod tests;
