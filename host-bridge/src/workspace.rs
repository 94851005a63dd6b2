//! Workspaces: a directory of the host that a sandbox has a copy of at `/workspace`, and whose changes
//! come back; or that it has itself.
//!
//! ```text
//!  configuration ──▶ Workspaces ──find(namespace, name)──▶ Workspace (directory, policy)
//!                                                              │
//!   host directory ◀── temporary, fsync, rename ── take ◀── Mirror ──▶ send ── tar ──▶ /workspace
//!        [`tree`]                                  ▲           │
//!                                                  └─ manifest, journal: what both had last
//! ```
//!
//! A copy travels through the agent, so that it is the same on each kind of machine, and the host decides about every file that comes back. The guest is hostile: its
//! names, sizes and links are judged here, the host's tree is walked beneath its own descriptor and
//! through no link, and a file is whole under its name or is not there. `sandbox` calls this and says
//! when; it knows neither sandboxes nor who asks. A mount is the
//! machine's: from here it has its directory and what of that may be written.

mod end;
mod error;
mod guest;
mod held;
pub mod limits;
mod manifest;
mod mirror;
mod place;
mod policy;
mod report;
mod send;
mod take;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::WorkspaceError;
pub use mirror::{Ends, Mirror, Said};
pub use policy::{Policy, parse_prefix};
pub use report::{Conflict, Refused, Report};
pub use send::clear;
pub use tree::sweep;

use crate::secret::Reach;
use limits::NAME_CHARS_MAX;

/// Where a sandbox finds it.
pub const WORKSPACE: &str = "/workspace";

/// A workspace as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    pub reach: Reach,
    pub policy: Policy,
}

/// One that a sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub path: PathBuf,
    pub policy: Policy,
}

/// All workspaces of one bridge. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Workspaces(Arc<BTreeMap<String, Entry>>);

impl Workspaces {
    pub fn new(entries: BTreeMap<String, Entry>) -> Self {
        Self(Arc::new(entries))
    }

    /// What a sandbox of this namespace gets under this name. An absolute path is itself: whoever
    /// lets callers through decides who may say one. Looks at no file.
    pub fn find(&self, namespace: &str, name: &str) -> Result<Workspace, WorkspaceError> {
        if is_path(name) {
            return Ok(Workspace { path: PathBuf::from(name), policy: Policy::default() });
        }
        // One of another namespace is as unknown as one that is not there.
        let entry = self.0.get(name).filter(|entry| entry.reach.covers(namespace));
        let entry = entry.ok_or_else(|| WorkspaceError::Unknown {
            name: name.chars().take(NAME_CHARS_MAX).collect(),
            namespace: namespace.to_owned(),
        })?;
        Ok(Workspace { path: entry.path.clone(), policy: entry.policy.clone() })
    }
}

impl Workspace {
    /// Refuses to mount what holds one of these directories, or lies in one: whoever reads those commands
    /// other sandboxes. A copy has no sockets in it, and is as its person wants it.
    pub fn check_apart(&self, name: &str, own: &[&Path]) -> Result<(), WorkspaceError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let here = real(&self.path);
        let meets = |own: &&Path| {
            let own = real(own);
            own.starts_with(&here) || here.starts_with(&own)
        };
        if self.policy.mount && own.iter().any(meets) {
            return Err(WorkspaceError::HoldsBridge { name: name.to_owned() });
        }
        Ok(())
    }
}

/// Whether a directory of the host is meant and no name of the configuration.
pub fn is_path(name: &str) -> bool {
    Path::new(name).is_absolute()
}

/// Whether a workspace may be called that: as a secret may.
pub fn is_name(text: &str) -> bool {
    crate::secret::is_name(text)
}

#[cfg(test)]
mod tests;
