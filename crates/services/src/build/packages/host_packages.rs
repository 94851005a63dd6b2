//! Installs packages over the host's own root: into a directory of this host, which every sandbox over that
//! root sees read-only at the same path, and which environment variables name. `packages` calls this after it
//! has checked that sandboxes have that root. It never writes anywhere else on the host.
//!
//! A sandbox that has the directory as its workspace fills it, and `cache` renames the directory when it is
//! complete. Its name is a digest of the packages and of the interpreters that use them, so that the same
//! packages are installed once, and again for another Python.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::run::{self, Command};
use super::super::{BuildEvent, BuildOptions, StepError, StepSandbox};
use super::cache::{CACHE_BYTES_MAX, CACHE_UNUSED_MAX, HostPackages, PackageCache, Prune};
use super::{Packages, PackagesError};
use image::digest::Digest;
use sandbox::host_packages::DEFAULT_PATH;
use sandbox::{Name, SandboxRef, Spec};

/// Where the sandbox that fills the directory has it.
pub(super) const PYTHON_TARGET: &str = "/workspace/python";
pub(super) const NODE_TARGET: &str = "/workspace/node";
/// Enough digits to make a collision impossible in practice.
const KEY_DIGITS: usize = 32;
/// Part of every name; to be raised when the way of installing changes.
const VERSION: u32 = 1;

/// Installs the packages, unless they are there. A new directory may cost others that nobody uses theirs.
pub(super) async fn install(
    packages: &Packages,
    options: &BuildOptions,
) -> Result<HostPackages, PackagesError> {
    let cache = PackageCache::of_user()?;
    let key = key(packages);
    let failed = |source| PackagesError::Place { path: cache.place().to_owned(), source };
    let state = &options.paths.state;
    if let Some(known) = cache.find(&key).map_err(failed)? {
        cache.note_user(state).map_err(failed)?;
        options.report(BuildEvent::Known).await;
        return Ok(known);
    }
    let draft = cache.draft().map_err(failed)?;
    let filled = fill(packages, &draft.directory, options).await;
    filled.map_err(|source| PackagesError::Command {
        source: Box::new(source),
        log: String::new(),
    })?;
    let kept = cache.keep(&draft, &key).map_err(failed)?;
    cache.note_user(state).map_err(failed)?;
    let paths = options.paths.clone();
    let bounds = Prune::OverBounds { bytes_max: CACHE_BYTES_MAX, unused_max: CACHE_UNUSED_MAX };
    let pruning = tokio::task::spawn_blocking(move || cache.prune(&paths, bounds));
    if let Ok(Err(error)) = pruning.await {
        let message = format!("old packages could not be removed: {error}");
        options.report(BuildEvent::Warning(message)).await;
    }
    Ok(kept)
}

/// The digest of the packages and their interpreters.
fn key(packages: &Packages) -> String {
    let steps = packages.steps().map(|(manager, packages)| {
        let packages: BTreeSet<_> = packages.iter().collect();
        json!([manager.argv, packages, interpreter(manager.interpreter)])
    });
    let steps: Vec<_> = steps.collect();
    let digest = Digest::of(json!([VERSION, steps]).to_string().as_bytes());
    digest.hex().chars().take(KEY_DIGITS).collect()
}

/// The interpreter's path, size and time, which change when it is replaced.
fn interpreter(name: &str) -> Option<(PathBuf, u64, i64)> {
    let mut paths = DEFAULT_PATH.split(':').map(|directory| Path::new(directory).join(name));
    let path = paths.find_map(|path| path.canonicalize().ok())?;
    let found = fs::metadata(&path).ok()?;
    Some((path, found.len(), found.mtime()))
}

/// Runs the package managers in a sandbox that has the directory as its workspace.
async fn fill(
    packages: &Packages,
    directory: &Path,
    options: &BuildOptions,
) -> Result<(), StepError> {
    let name = run::NAME.parse().expect("it is a name");
    let mut spec = Spec::new(SandboxRef { namespace: Name::default_namespace(), name });
    let StepSandbox { machine, memory_mib, cpu_millis, files } = options.step.clone();
    (spec.machine, spec.memory_mib, spec.cpu_millis) = (Some(machine), memory_mib, cpu_millis);
    (spec.workspace, spec.mount) = (Some(directory.display().to_string()), true);
    spec.egress = Some(packages.egress());
    let (sandbox, refused) = run::begin(options, &spec, files).await?;
    let mut done = Ok(());
    let of = packages.steps().count();
    for (number, (manager, packages)) in packages.steps().enumerate() {
        let packages: BTreeSet<_> = packages.iter().map(String::as_str).collect();
        let text = format!(
            "{} {}",
            manager.egress,
            packages.iter().copied().collect::<Vec<_>>().join(" ")
        );
        options.report(BuildEvent::Step { number: number + 1, of, text }).await;
        let argv = manager.argv.iter().chain(manager.into).copied().chain(packages);
        let command = Command {
            argv: argv.map(str::to_owned).collect(),
            env: Vec::new(),
            cwd: "/".to_owned(),
            user: None,
            egress: Vec::new(),
        };
        done = run::execute(sandbox.guest(), options, &command).await;
        if done.is_err() {
            break;
        }
    }
    run::end(sandbox, &refused, options).await;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_packages_have_the_same_place_in_any_order() {
        let of = |pip: &[&str], npm: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            key(&Packages { pip: owned(pip), npm: owned(npm) })
        };
        assert_eq!(of(&["a", "b"], &[]), of(&["b", "a", "a"], &[]));
        assert_ne!(of(&["a"], &[]), of(&[], &["a"]));
        assert_ne!(of(&["a"], &[]), of(&["a==1"], &[]));
    }
}
