//! Installs packages for a sandbox. On top of an image: a recipe with one step for each package manager,
//! whose layers are found by their inputs. Over the host's own root: see `host_packages`. Either way the
//! same packages are installed once.

pub mod cache;
mod host_packages;
mod rights;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::channel;
use tokio::task::JoinHandle;

pub use self::cache::HostPackages;
use super::{BuildError, BuildEvent, BuildOptions, BuildRequest, Plan, StepError, build};
use ::host::paths::PathsError;
use image::{Image, Pull};
use sandbox::Spec;
use sandbox::host_files::HOST_ROOT;

/// Packages of one manager for one sandbox: a list that people write, or a program that knows what it needs.
pub const PACKAGES_MAX: usize = 256;
/// A requirement with its versions and markers.
pub const PACKAGE_BYTES_MAX: usize = 256;
/// How much of the package managers' last output is kept, to show why they failed.
const LOG_BYTES_MAX: usize = 4096;
/// Waiting events; a full buffer slows the build down.
const EVENTS_WAITING_MAX: usize = 64;

/// The packages to install, by their names in the package managers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Requirements, as `pandas` or `pandas==2.2`.
    #[serde(default)]
    pub pip: Vec<String>,
    /// Packages of Node.js, as `express` or `express@4`, installed for all users.
    #[serde(default)]
    pub npm: Vec<String>,
}

/// Why packages are not installed.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    #[error("{0:?} is not the name of a package")]
    Name(String),
    #[error("{count} packages are too many; the limit is {PACKAGES_MAX}")]
    TooMany { count: usize },
    #[error(
        "packages need an image from the store, on which they are installed, or the host's own root where \
        that is this user's; name one that `host-bridge image ls` lists, or have one pulled, as in \
        `host-bridge start --image python:3.12-slim --pull missing --pip pandas`"
    )]
    NoImage,
    #[error(transparent)]
    NoPlace(#[from] PathsError),
    #[error("the packages cannot be kept in {path:?}: {source}")]
    Place { path: PathBuf, source: io::Error },
    #[error("the packages were not installed: {source}{}", after(.log))]
    Command { source: Box<StepError>, log: String },
    #[error(
        "packages are installed on images from the store, and {name:?} is not in it (images of the kit \
        are not either); pull it with `host-bridge image pull {name}`, or ask for it to be pulled"
    )]
    NotStored { name: String },
    #[error("the packages were not installed: {source}{}", after(.log))]
    Failed { source: BuildError, log: String },
}

fn after(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}

/// A package manager: how it is called, and the registry that it reaches.
struct Manager {
    pub argv: &'static [&'static str],
    pub egress: &'static str,
    /// What it is called with to put packages into a directory of their own.
    pub into: &'static [&'static str],
    /// The program that uses what it installs.
    pub interpreter: &'static str,
}

const PIP: Manager = Manager {
    // The image is for this sandbox, so its packages conflict with no others.
    argv: &[
        "env",
        "PIP_BREAK_SYSTEM_PACKAGES=1",
        "PIP_ROOT_USER_ACTION=ignore",
        "python3",
        "-m",
        "pip",
        "install",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--no-input",
    ],
    egress: "@pypi",
    into: &["--target", host_packages::PYTHON_TARGET],
    interpreter: "python3",
};
const NPM: Manager = Manager {
    argv: &["npm", "install", "--global", "--no-audit", "--no-fund"],
    egress: "@npm",
    into: &["--prefix", host_packages::NODE_TARGET],
    interpreter: "node",
};

impl Packages {
    pub fn is_empty(&self) -> bool {
        self.pip.is_empty() && self.npm.is_empty()
    }

    fn check(&self) -> Result<(), PackagesError> {
        let count = self.pip.len().max(self.npm.len());
        if count > PACKAGES_MAX {
            return Err(PackagesError::TooMany { count });
        }
        let all = self.pip.iter().chain(&self.npm);
        match all.into_iter().find(|name| !is_package(name)) {
            Some(wrong) => Err(PackagesError::Name(wrong.clone())),
            None => Ok(()),
        }
    }

    fn steps(&self) -> impl Iterator<Item = (&'static Manager, &[String])> {
        let all = [(&PIP, self.pip.as_slice()), (&NPM, self.npm.as_slice())];
        all.into_iter().filter(|(_, packages)| !packages.is_empty())
    }

    /// The registries that they come from.
    fn egress(&self) -> Vec<String> {
        self.steps().map(|(manager, _)| manager.egress.to_owned()).collect()
    }

    /// The recipe. The order in which packages were named makes no difference.
    fn recipe(&self, base: &str) -> String {
        let mut recipe = format!("FROM {base}\n");
        for (manager, packages) in self.steps() {
            let packages: BTreeSet<_> = packages.iter().map(String::as_str).collect();
            let argv: Vec<_> = manager.argv.iter().copied().chain(packages).collect();
            let argv = serde_json::json!(argv).to_string();
            recipe.extend(["RUN ", &argv, "\n"]);
        }
        recipe
    }
}

/// The pattern of [`is_package`], for documents.
pub const PACKAGE: &str = r"^[A-Za-z0-9@][!#%&(-\[\]-_a-~]*$";

/// Whether a text is a package and not an option, or anything that a shell or a recipe would read.
fn is_package(text: &str) -> bool {
    let is_first = |first: char| first.is_ascii_alphanumeric() || first == '@';
    text.len() <= PACKAGE_BYTES_MAX
        && text.starts_with(is_first)
        && text.chars().all(|c| c.is_ascii_graphic() && !"\"'\\$`".contains(c))
}

/// Installed packages, for the sandbox that asked for them.
pub enum Installed {
    Image(Box<Image>),
    OverHost(HostPackages),
}

impl Installed {
    /// Gives a specification the packages. What comes back keeps them until the sandbox is in a record, or over.
    #[must_use]
    pub fn give(self, spec: &mut Spec) -> Option<HostPackages> {
        match self {
            Self::Image(image) => {
                spec.base = spec.image.replace(image.digest.to_string());
                // It is only in this store.
                spec.pull = Some(Pull::Never);
                None
            }
            Self::OverHost(packages) => {
                spec.packages = Some(packages.directory.clone());
                Some(packages)
            }
        }
    }
}

/// Installs the packages on `base`, an image of the store, or over the host's own root if no image is named
/// and sandboxes have that root. `options.events` receives the build's events.
pub async fn install(
    packages: &Packages,
    base: Option<&str>,
    mut options: BuildOptions,
) -> Result<Installed, PackagesError> {
    packages.check()?;
    if base.is_none_or(|base| base == HOST_ROOT) && options.step.has_hosts_root() {
        let log = listen(&mut options);
        let installed = host_packages::install(packages, &options).await;
        drop(options);
        let log = log.await.unwrap_or_default();
        return match installed {
            Err(PackagesError::Command { source, .. }) => {
                Err(PackagesError::Command { source, log })
            }
            installed => installed.map(Installed::OverHost),
        };
    }
    let base = base.filter(|base| !base.starts_with('/')).ok_or(PackagesError::NoImage)?;
    if options.images.find(base).is_err() {
        return Err(PackagesError::NotStored { name: base.to_owned() });
    }
    let request = BuildRequest {
        // Nothing is copied from it.
        context: options.paths.runtime.clone(),
        text: Some(packages.recipe(base)),
        egress: packages.egress(),
        ..BuildRequest::default()
    };
    let log = listen(&mut options);
    let built = match Plan::read(request) {
        Ok(plan) => build(&plan, &options).await,
        Err(error) => Err(error),
    };
    drop(options);
    let log = log.await.unwrap_or_default();
    built
        .map(|image| Installed::Image(Box::new(image)))
        .map_err(|source| PackagesError::Failed { source, log })
}

/// Keeps the end of the output while the options live, and passes every event on.
fn listen(options: &mut BuildOptions) -> JoinHandle<String> {
    let (events, mut progress) = channel(EVENTS_WAITING_MAX);
    let outer = std::mem::replace(&mut options.events, events);
    tokio::spawn(async move {
        let mut log = Vec::new();
        while let Some(event) = progress.recv().await {
            if let BuildEvent::Output(bytes) = &event {
                log.extend_from_slice(bytes);
                let over = log.len().saturating_sub(LOG_BYTES_MAX);
                log.drain(..over);
            }
            // There may be no listener.
            let _ = outer.send(event).await;
        }
        String::from_utf8_lossy(&log).trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(pip: &[&str], npm: &[&str]) -> Packages {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Packages { pip: owned(pip), npm: owned(npm) }
    }

    #[test]
    fn the_same_packages_are_the_same_recipe_in_any_order() {
        let one = packages(&["pandas", "numpy>=2"], &["express@4"]).recipe("base");
        assert_eq!(one, packages(&["numpy>=2", "pandas", "pandas"], &["express@4"]).recipe("base"));
        assert!(one.starts_with("FROM base\nRUN [\"env\","), "{one}");
        assert!(one.contains("\"numpy>=2\",\"pandas\"]\nRUN [\"npm\","), "{one}");
    }

    #[test]
    fn invalid_packages_are_refused() {
        for good in ["pandas", "pandas[all]>=2,<3", "@types/node@20", "uvicorn==0.30.*"] {
            assert!(is_package(good), "{good}");
        }
        for wrong in ["", "-r", "--index-url=x", "a b", "<3", "a\nRUN x", "a\"", "$(x)", "ä"] {
            assert!(!is_package(wrong), "{wrong}");
            assert!(packages(&[wrong], &[]).check().is_err(), "{wrong}");
        }
    }
}
