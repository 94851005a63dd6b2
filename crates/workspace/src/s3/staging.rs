//! The files of a bucket for one sandbox, in a directory of the bridge: what the mirror uses as the host's
//! tree. It is filled from the bucket before the mirror sends it, and what the mirror writes there is pushed
//! after each exchange.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::fs::File;
use tokio::time::{Instant, timeout_at};

use super::BucketAccess;
use super::client::Client;
use super::directory::StagingDirectory;
use super::error::S3Error;
use super::ledger::{Ledger, Object};
use super::limits::AT_ONCE;
use super::multipart::Uploads;
use super::pending::PendingPushes;
use super::plan::{Plan, PlannedFetch, plan};
use crate::limits::SYNC_DEADLINE;
use crate::manifest::Digest;
use crate::tree::{Tree, settle};
use crate::{MirrorSettings, Report, Workspace, WorkspaceError};

const NEW_DIRECTORY: u32 = 0o755;

/// The files of a bucket for one sandbox.
pub struct Staging {
    pub(super) holder: BucketAccess,
    pub(super) tree: Arc<Tree>,
    pub(super) home: StagingDirectory,
    pub(super) ledger: Arc<Ledger>,
    pub(super) uploads: Uploads,
    /// The sandbox's id: a part of the names of copies.
    pub(super) owner: String,
    /// Paths that were reported as not copied; each bridge reports them once.
    pub(super) left_out: BTreeSet<Vec<u8>>,
    pub(super) behind: PendingPushes,
}

impl Staging {
    /// Fetches the content of the bucket, if the workspace is one. After that the mirror finds a directory.
    pub async fn open(
        ends: &mut MirrorSettings,
        state: Option<&Path>,
    ) -> Result<(Option<Self>, Report), WorkspaceError> {
        let mut report = Report::default();
        let Some(holder) = ends.workspace.bucket.clone() else { return Ok((None, report)) };
        let deadline = Instant::now() + SYNC_DEADLINE;
        let (place, owner) = (state.map(Path::to_owned), ends.owner.clone());
        let making = tokio::task::spawn_blocking(move || {
            let home = StagingDirectory::make(place.as_deref(), &owner)?;
            Ok((Tree::open_own(&home.root, &owner)?, home))
        });
        let made = making.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (tree, home) = made.map_err(|error| WorkspaceError::file(b".", error))?;
        let mut staging = Self {
            holder,
            tree: Arc::new(tree),
            home,
            ledger: Arc::new(Ledger::new(state.map(Path::to_owned))),
            uploads: Uploads::read(state.map(Path::to_owned)),
            owner: ends.owner.clone(),
            left_out: BTreeSet::new(),
            behind: PendingPushes::default(),
        };
        let fetching = staging.fetch(ends, &mut report);
        let overran = |_| WorkspaceError::Overran { seconds: SYNC_DEADLINE.as_secs() };
        timeout_at(deadline, fetching).await.map_err(overran)??;
        staging.ledger.save().map_err(WorkspaceError::Manifest)?;
        ends.workspace.path.clone_from(&staging.home.root);
        Ok((Some(staging), report))
    }

    /// Continues for an earlier bridge.
    pub async fn adopt(
        ends: &mut MirrorSettings,
        state: &Path,
    ) -> Result<Option<Self>, WorkspaceError> {
        let staging = Self::find(&ends.workspace, &ends.owner, state).await?;
        if let Some(staging) = &staging {
            ends.workspace.path.clone_from(&staging.home.root);
        }
        Ok(staging)
    }

    /// The files of a sandbox that has some, whether or not it still has a machine.
    pub async fn find(
        workspace: &Workspace,
        owner: &str,
        state: &Path,
    ) -> Result<Option<Self>, WorkspaceError> {
        let Some(holder) = workspace.bucket.clone() else { return Ok(None) };
        let (state, of) = (state.to_owned(), owner.to_owned());
        let finding = tokio::task::spawn_blocking(move || {
            let home = StagingDirectory::find(&state)?;
            let tree = Tree::open_own(&home.root, &of)?;
            Ok((tree, home, Ledger::read(&state)?, Uploads::read(Some(state))))
        });
        let found = finding.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (tree, home, ledger, uploads) = match found {
            Ok(found) => found,
            // It has ended before it had any.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(WorkspaceError::Manifest(error)),
        };
        Ok(Some(Self {
            holder,
            tree: Arc::new(tree),
            home,
            ledger: Arc::new(ledger),
            uploads,
            owner: owner.to_owned(),
            left_out: BTreeSet::new(),
            behind: PendingPushes::default(),
        }))
    }

    /// How long until what the bucket did not take is retried; `None` if it has everything. Each
    /// pause is longer.
    pub fn again(&mut self) -> Option<Duration> {
        self.behind.again()
    }

    async fn fetch(
        &mut self,
        ends: &MirrorSettings,
        report: &mut Report,
    ) -> Result<(), WorkspaceError> {
        let policy = &ends.workspace.policy;
        let client = self.holder.client().await?;
        let entries_max = policy.entries_max;
        let listed = client.list(entries_max).await?;
        let listed = listed.ok_or(WorkspaceError::TooManyEntries { entries_max })?;
        let Plan { wanted, left_out } = plan(&self.holder.bucket.prefix, listed, policy)?;
        for (path, why) in left_out {
            report.refuse(path.as_bytes(), why);
        }
        // Objects that have grown since the listing share what remains of the total.
        let listed: u64 = wanted.iter().map(|wanted| wanted.bytes).sum();
        let share = policy.total_bytes_max.saturating_sub(listed) / wanted.len().max(1) as u64;
        let bytes_max = |bytes: u64| policy.file_bytes_max.min(bytes + share);
        let (root, client) = (&self.home.root, &client);
        let fetched: Vec<_> = stream::iter(wanted)
            .map(|wanted| async move {
                let got = fetch_one(client, root, &wanted, bytes_max(wanted.bytes)).await?;
                Ok::<_, WorkspaceError>((wanted, got))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for (PlannedFetch { path, .. }, got) in fetched {
            let (etag, mode, digest) = match got {
                Ok(got) => got,
                Err(why) => {
                    report.refuse(path.as_bytes(), why);
                    continue;
                }
            };
            let found = self.tree.look(path.as_bytes());
            let found = found.map_err(|errno| WorkspaceError::file(path.as_bytes(), errno))?;
            let Some(found) = found else { continue };
            let etag = Some(etag);
            let object = Object { etag, stamp: found.stamp, mode, digest };
            Arc::make_mut(&mut self.ledger).known.insert(path, object);
        }
        Ok(())
    }
}

type FetchedFile = (String, u32, Digest);

/// Fetches one object, or returns why it is skipped.
async fn fetch_one(
    client: &Client,
    root: &Path,
    wanted: &PlannedFetch,
    bytes_max: u64,
) -> Result<Result<FetchedFile, String>, WorkspaceError> {
    let path = root.join(&wanted.path);
    let failed = |error: io::Error| WorkspaceError::file(wanted.path.as_bytes(), error);
    let (parent, new) = (path.parent().unwrap_or(root).to_owned(), path.clone());
    let made = tokio::task::spawn_blocking(move || {
        fs::DirBuilder::new().recursive(true).mode(NEW_DIRECTORY).create(parent)?;
        // The directory is new and no link is in it; nothing is in the way of a name.
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)
    });
    let made = made.await.unwrap_or_else(|error| Err(error.into())).map_err(failed)?;
    let mut file = File::from_std(made);
    let left_out = match client.get(&wanted.key, Some(&mut file), bytes_max).await {
        Ok(Some(got)) => Ok(got),
        Ok(None) => Err("it no longer exists, or it has no object key".to_owned()),
        // An object that is archived or locked with its own key must not stop the others.
        Err(error @ S3Error::Refused { .. }) => Err(error.to_string()),
        Err(error) => {
            let (path, source) = (wanted.path.clone(), Box::new(error));
            return Err(WorkspaceError::Object { path, source });
        }
    };
    let got = match left_out {
        Ok(got) => got,
        Err(why) => {
            tokio::fs::remove_file(&path).await.map_err(failed)?;
            return Ok(Err(why));
        }
    };
    let (file, modified_ms) = (file.into_std().await, host::instant::now_ms() as i64);
    let settled = tokio::task::spawn_blocking(move || settle(&file, got.mode, modified_ms));
    settled.await.unwrap_or_else(|error| Err(error.into())).map_err(failed)?;
    Ok(Ok((got.etag, got.mode, got.digest)))
}

impl From<S3Error> for WorkspaceError {
    fn from(error: S3Error) -> Self {
        Self::Bucket(Box::new(error))
    }
}
