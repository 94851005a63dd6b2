//! A bridge for one client in its own process, used when no daemon runs.
//!
//! Its sandboxes belong to that process and end with it, however it ends. Several of them can run
//! side by side and next to a daemon, because each has its own directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;

use super::audit as audit_log;
use super::door::images;
use super::serve::means_of;
use access::audit::Audit;
use api::{Api, Options};
use control::{CheckedSettings, InvalidSettings};
use host::id::RandomId;
use host::lock::{LockError, Locks};
use host::paths::{Paths, PathsError};
use host::secret;
use image::{ImageError, Images, Puller};
use machine::Machines;
use sandbox::{Registry, RegistryOptions, SandboxError, event};
use services::artifact::{self, ArtifactError, Artifacts};
use services::notebook::Notebooks;
use services::store::{Store, StoreError};
use settings::SettingsError;

/// The prefix of its directory's name.
const PREFIX: &str = "mcp-";
/// A directory younger than this may belong to a bridge that has not locked it yet.
const SETTLED: Duration = Duration::from_secs(60);

/// See the module's description.
pub struct Embedded {
    api: Api,
    notebooks: Notebooks,
    audit: Audit,
    directory: PathBuf,
    _locks: Locks,
}

/// Why it could not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(transparent)]
    Paths(#[from] PathsError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    InvalidSettings(#[from] InvalidSettings),
    #[error(transparent)]
    Images(#[from] ImageError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    #[error("cannot make a random id: {0}")]
    Draw(io::Error),
}

impl Embedded {
    /// No keys are asked for: the holder of this may do everything. `audit` is the log of the state
    /// directory, which outlives this.
    pub async fn open(outer: &Paths, audit: Audit) -> Result<Self, EmbeddedError> {
        outer.prepare()?;
        sweep(&outer.runtime);
        let id = RandomId::draw().map_err(EmbeddedError::Draw)?;
        let directory = outer.runtime.join(format!("{PREFIX}{id}"));
        let paths = Paths { runtime: directory.clone(), state: directory.join("state") };
        paths.prepare()?;
        let locks = Locks::take(&paths)?;
        let own = Store::open(&paths).await?;
        let artifacts = Artifacts::open(&paths, own, artifact::Limits::default()).await?;
        let machines = Machines::default();
        let events = audit_log::recording(event::nobody(), audit.clone());
        let settings = control::own_settings()?;
        if !settings.secrets.is_empty() {
            secret::guard_process();
        }
        let CheckedSettings { image_policy, sources, .. } = control::check_settings(&settings)?;
        // The images are those of the bridge that serves.
        let store_of_images = Images::open(outer)?;
        let pull = settings.image_policy.pull;
        let defaults = control::operator_defaults(&settings);
        let means = RegistryOptions {
            files: control::own_host_files(&settings),
            operator_defaults: defaults.clone(),
            defaults,
            puller: Some(Puller::new(store_of_images.clone(), sources, pull)),
            images: Some(store_of_images),
            image_policy,
            ..means_of(&settings)
        };
        let registry = Registry::open_alone(paths, outer.clone(), machines, events, means);
        let registry = registry.await?;
        // Notebooks outlive this process, and are where a bridge that serves finds them.
        // Each call that needs it says why it is refused.
        let store = Store::open_or_refuse(outer, drop).await;
        let notebooks = Notebooks::new(outer.clone(), registry.clone(), store, drop);
        let options = Options {
            notebooks: Some(notebooks.clone()),
            artifacts: Some(artifacts),
            audit: audit.clone(),
            images: images(&settings),
            ..Options::local()
        };
        let api = Api::new(registry, options);
        Ok(Self { api, notebooks, audit, directory, _locks: locks })
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Ends all its sandboxes and removes its directories.
    pub async fn close(self) {
        self.notebooks.end().await;
        let registry = self.api.registry();
        let mut removals = JoinSet::new();
        for record in registry.list(None) {
            let (registry, which) = (registry.clone(), record.which());
            // One that hangs ends with this process.
            removals.spawn(async move { registry.discard(&which).await.is_ok() });
        }
        while removals.join_next().await.is_some() {}
        registry.leave().await;
        self.audit.close().await;
        // What is left of it, the next one sweeps.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directories of embedded bridges that were killed.
fn sweep(runtime: &Path) {
    let Ok(entries) = fs::read_dir(runtime) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let age = entry.metadata().and_then(|found| found.modified()).ok();
        let age = age.and_then(|at| SystemTime::now().duration_since(at).ok());
        if !is_ours || age.is_none_or(|age| age < SETTLED) {
            continue;
        }
        let runtime = entry.path();
        let paths = Paths { state: runtime.join("state"), runtime };
        // A live process holds its locks.
        if let Ok(_locks) = Locks::take(&paths) {
            let _ = fs::remove_dir_all(&paths.runtime);
        }
    }
}
