//! The builder: recipe, lock and agent in, images and the kernel kit out, each only when something
//! that goes into it has changed.
//!
//! `cli` calls it. Files are written under another name and renamed when they are whole; a lock on
//! the directory keeps two builds apart.

mod bytecode;
mod image;
mod kit;
mod layers;
mod locking;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

use crate::digest::{Hasher, Sha256};
use crate::lock::{Lock, Pin};
use crate::manifest::{Agent, Output, Package};
use crate::recipe::{Recipe, Recipes};

pub use locking::lock;

/// The variable that gives all files their time, as reproducible builds have agreed.
const TIME_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Recipes and locks, below the directory of sources.
const RECIPES: &str = "recipes";
const LOCKS: &str = "locks";

/// The cache of packages, below the directory of images.
const CACHE: &str = "cache";

/// What is built, from what, to where.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// The directory with `recipes` and `locks`.
    pub source: PathBuf,
    pub out: PathBuf,
    pub agent: PathBuf,
    /// All recipes that are not optional, when empty.
    pub names: Vec<String>,
}

/// One thing that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildResult {
    pub name: String,
    /// Whether anything was done for it.
    pub changed: bool,
    pub bytes: u64,
}

/// Builds an order, as far as it is not built already.
pub fn build(order: &BuildRequest, say: &mut dyn FnMut(&str)) -> Result<Vec<BuildResult>> {
    let site = BuildContext::open(order)?;
    let mut built = Vec::new();
    for (name, recipe) in chosen(&site.book, &order.names)? {
        let result = if recipe.is_kernel() {
            kit::build(&site, &name, &recipe, say)
        } else {
            image::build(&site, &name, &recipe, say)
        };
        built.push(result.with_context(|| format!("building {name}"))?);
    }
    Ok(built)
}

/// The named recipes, or all that are not optional; the kernel first, because boots need it.
fn chosen(book: &Recipes, names: &[String]) -> Result<Vec<(String, Recipe)>> {
    let all = if names.is_empty() { book.names()? } else { names.to_vec() };
    let mut recipes = Vec::new();
    for name in all {
        let recipe = book.get(&name)?;
        if !(names.is_empty() && recipe.optional) {
            recipes.push((name, recipe));
        }
    }
    recipes.sort_by_key(|(_, recipe)| !recipe.is_kernel());
    Ok(recipes)
}

/// Everything that one build works with.
struct BuildContext {
    book: Recipes,
    locks: PathBuf,
    out: PathBuf,
    cache: PathBuf,
    agent_path: PathBuf,
    agent: Agent,
    /// The digest of this program: another builder may build differently.
    builder: Sha256,
    _guard: Flock<File>,
}

impl BuildContext {
    fn open(order: &BuildRequest) -> Result<Self> {
        let cache = order.out.join(CACHE);
        std::fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
        // It is never removed, so that all builds lock the same file.
        let guard = File::create(order.out.join(".lock"))?;
        let guard = Flock::lock(guard, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
        let (sha256, bytes) = Sha256::of_file(&order.agent).with_context(|| {
            format!("the agent {} (build it with `./do build`)", order.agent.display())
        })?;
        let (builder, _) = Sha256::of_file(&std::env::current_exe()?)?;
        let agent = Agent { release: String::new(), bytes, sha256 };
        Ok(Self {
            book: Recipes::new(&order.source.join(RECIPES)),
            locks: order.source.join(LOCKS),
            out: order.out.clone(),
            cache,
            agent_path: order.agent.clone(),
            agent,
            builder,
            _guard: guard,
        })
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        Ok(Lock::read(&self.locks, name)?)
    }

    /// The agent's entry in manifests.
    fn agent(&self) -> Result<Agent> {
        let output = std::process::Command::new(&self.agent_path)
            .arg("--version")
            .output()
            .with_context(|| format!("reading the release of {}", self.agent_path.display()))?;
        let version = String::from_utf8_lossy(&output.stdout);
        let release = version.split_whitespace().last().unwrap_or("unknown").to_owned();
        Ok(Agent { release, ..self.agent.clone() })
    }

    /// The digest of an image's whole input, except the agent.
    fn key(&self, recipe: &Recipe, lock: &Lock, time_s: u64) -> Sha256 {
        let mut hasher = Hasher::new();
        hasher.part(&self.builder.0);
        hasher.part(format!("{recipe:?}").as_bytes());
        hasher.part(lock.encode().as_bytes());
        hasher.part(&time_s.to_le_bytes());
        hasher.finish()
    }

    fn with_agent(&self, key: Sha256) -> Sha256 {
        let mut hasher = Hasher::new();
        hasher.part(&key.0);
        hasher.part(&self.agent.sha256.0);
        hasher.finish()
    }

    /// Whether a file is there as a manifest states it.
    fn has(&self, output: &Output) -> bool {
        let there = Sha256::of_file(&self.out.join(&output.file));
        there.is_ok_and(|there| there == (output.sha256, output.bytes))
    }

    /// A manifest of an earlier build, if there is one that can be read.
    fn manifest<T: serde::de::DeserializeOwned>(&self, file: &str) -> Option<T> {
        serde_json::from_slice(&std::fs::read(self.out.join(file)).ok()?).ok()
    }

    fn write_manifest(&self, file: &str, manifest: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(manifest)? + "\n";
        self.write(file, |out| Ok(out.write_all(text.as_bytes())?))
    }

    /// Writes a file of the directory, which is there whole or as it was.
    fn write<T>(
        &self,
        file: &str,
        content: impl FnOnce(&mut BufWriter<File>) -> Result<T>,
    ) -> Result<T> {
        write_whole(&self.out.join(file), content)
    }
}

/// Writes a file under another name and renames it when it is whole.
fn write_whole<T>(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> Result<T>,
) -> Result<T> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let write = || {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&unfinished)?);
        let result = content(&mut out)?;
        out.flush()?;
        std::fs::rename(&unfinished, path)?;
        Ok::<T, anyhow::Error>(result)
    };
    let result = write().with_context(|| format!("writing {}", path.display()));
    if result.is_err() {
        // Whether that works changes nothing about the failure.
        let _ = std::fs::remove_file(&unfinished);
    }
    result
}

/// The packages of a lock as manifests have them.
fn packages(lock: &Lock) -> Vec<Package> {
    let package = |pin: &Pin| Package {
        name: pin.name.clone(),
        version: pin.version.clone(),
        sha256: pin.sha256,
    };
    lock.pins.iter().map(package).collect()
}

/// The time that counts: as the environment wants it, or else another.
fn time_s(otherwise_s: u64) -> Result<u64> {
    match std::env::var(TIME_VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{TIME_VARIABLE} is {text:?}")),
        Err(_) => Ok(otherwise_s),
    }
}
