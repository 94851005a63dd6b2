//! Plans a build before anything is done: the recipe is read, its stages are linked, and unneeded
//! stages are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{BuildError, BuildRequest, IGNORE, StepError};
use image::dockerfile::limits::FILE_BYTES_MAX;
use image::dockerfile::pattern::Ignore;
use image::dockerfile::{Copy, Dockerfile, Instruction, Stage, words};
use image::document::Platform;

const DOCKERFILE: &str = "Dockerfile";
/// The image that has nothing in it.
const SCRATCH: &str = "scratch";

/// The name of a recipe from standard input.
pub const STDIN: &str = "-";

/// The base of a stage, or the source of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    Scratch,
    Stage(usize),
    Image(String),
}

/// A build that can be begun.
#[derive(Debug)]
pub struct Plan {
    pub request: BuildRequest,
    pub(super) file: String,
    pub(super) recipe: Dockerfile,
    pub(super) ignore: Arc<Ignore>,
    /// The base of each stage.
    pub(super) from: Vec<From>,
    /// The stages that are built, in their request; the last is the target.
    pub(super) stages: Vec<usize>,
    /// Variables from before the first stage.
    pub(super) before: BTreeMap<String, String>,
}

impl Plan {
    pub fn read(request: BuildRequest) -> Result<Self, BuildError> {
        // A path that a person names is used as it is; a path that is searched must be in the
        // context.
        let (path, within) = match request.file.clone() {
            Some(file) => (file, None),
            None => (request.context.join(DOCKERFILE), Some(request.context.as_path())),
        };
        let (file, text) = match &request.text {
            Some(text) => (STDIN.to_owned(), text.clone()),
            None => (path.display().to_string(), read(&path, within)?),
        };
        let recipe = Dockerfile::parse(&text);
        let recipe = recipe.map_err(|wrong| BuildError::Recipe { file: file.clone(), wrong })?;
        let ignore = ignored(&request, &path, within)?;
        let mut plan = Self {
            request,
            file,
            recipe,
            ignore: Arc::new(ignore),
            from: Vec::new(),
            stages: Vec::new(),
            before: platform_arguments(),
        };
        plan.relate()?;
        Ok(plan)
    }

    /// The images that must be here, by their names in the recipe.
    pub fn images(&self) -> BTreeSet<String> {
        let of = |from: From| match from {
            From::Image(name) => Some(name),
            From::Scratch | From::Stage(_) => None,
        };
        let bases = self.stages.iter().map(|at| self.from[*at].clone());
        let copies = self.stages.iter().flat_map(|at| self.copies(*at));
        bases.chain(copies).filter_map(of).collect()
    }

    /// Arguments that no stage uses.
    pub fn unused(&self) -> Vec<String> {
        let stages = self.recipe.stages.iter().flat_map(|stage| &stage.steps);
        let taken: BTreeSet<_> = stages
            .chain(&self.recipe.before)
            .filter_map(|step| match &step.what {
                Instruction::Arg(all) => Some(all.iter().map(|(name, _)| name.as_str())),
                _ => None,
            })
            .flatten()
            .collect();
        let names = self.request.args.iter().map(|(name, _)| name);
        names.filter(|name| !taken.contains(name.as_str())).cloned().collect()
    }

    /// The source of a copy, seen from a stage.
    pub(super) fn source(&self, stage: usize, name: &str) -> From {
        if name == SCRATCH {
            return From::Scratch;
        }
        self.stage_before(stage, name)
            .or_else(|| name.parse().ok().filter(|at| *at < stage))
            .map_or_else(|| From::Image(name.to_owned()), From::Stage)
    }

    pub(super) fn wrong(&self, line: usize, source: impl Into<StepError>) -> BuildError {
        BuildError::Step { file: self.file.clone(), line, source: Box::new(source.into()) }
    }

    /// The value of an argument, or the recipe's default.
    pub(super) fn argument(&self, name: &str) -> Option<String> {
        let given = self.request.args.iter().rev().find(|(known, _)| known == name);
        given.map(|(_, value)| value.clone())
    }

    fn relate(&mut self) -> Result<(), BuildError> {
        let escape = self.recipe.escape;
        for step in self.recipe.before.clone() {
            let Instruction::Arg(all) = &step.what else { continue };
            for (name, usual) in all {
                let known = |name: &str| self.before.get(name).cloned();
                let usual = usual.as_ref().map(|text| words::expand(text, escape, &known));
                let usual = usual.transpose().map_err(|fault| self.wrong(step.line, fault))?;
                if let Some(value) = self.argument(name).or(usual) {
                    self.before.insert(name.clone(), value);
                }
            }
        }
        for at in 0..self.recipe.stages.len() {
            let stage = self.recipe.stages[at].clone();
            let from = self.begins(at, &stage)?;
            self.from.push(from);
        }
        let target = self.target()?;
        let mut needed = BTreeSet::new();
        let mut waiting = vec![target];
        while let Some(at) = waiting.pop() {
            if needed.insert(at) {
                let all = self.copies(at).chain([self.from[at].clone()]);
                waiting.extend(all.filter_map(|from| match from {
                    From::Stage(at) => Some(at),
                    From::Scratch | From::Image(_) => None,
                }));
            }
        }
        self.stages = needed.into_iter().collect();
        Ok(())
    }

    fn begins(&self, at: usize, stage: &Stage) -> Result<From, BuildError> {
        let known = |name: &str| self.before.get(name).cloned();
        let expand = |text: &str| {
            let expanded = words::expand(text, self.recipe.escape, &known);
            expanded.map_err(|fault| self.wrong(stage.line, fault))
        };
        if let Some(platform) = &stage.platform {
            let (wanted, host) = (expand(platform)?, Platform::host().to_string());
            if wanted != host {
                return Err(self.wrong(stage.line, StepError::Platform { wanted, host }));
            }
        }
        let from = expand(&stage.from)?;
        if from.is_empty() {
            let (what, value) = ("name of an image", stage.from.clone());
            return Err(self.wrong(stage.line, StepError::Value { what, value }));
        }
        Ok(match self.stage_before(at, &from) {
            _ if from == SCRATCH => From::Scratch,
            Some(stage) => From::Stage(stage),
            None => From::Image(from),
        })
    }

    fn stage_before(&self, at: usize, name: &str) -> Option<usize> {
        let name = name.to_ascii_lowercase();
        self.recipe.stages[..at].iter().position(|stage| stage.name.as_ref() == Some(&name))
    }

    fn copies(&self, at: usize) -> impl Iterator<Item = From> + '_ {
        self.recipe.stages[at].steps.iter().filter_map(move |step| match &step.what {
            Instruction::Copy(Copy { from: Some(from), .. }) => Some(self.source(at, from)),
            _ => None,
        })
    }

    fn target(&self) -> Result<usize, BuildError> {
        let stages = &self.recipe.stages;
        let Some(name) = &self.request.target else { return Ok(stages.len() - 1) };
        let number = || name.parse().ok().filter(|at| *at < stages.len());
        self.stage_before(stages.len(), name).or_else(number).ok_or_else(|| BuildError::Target {
            name: name.clone(),
            known: stages.iter().filter_map(|stage| stage.name.clone()).collect(),
        })
    }
}

/// Arguments that every recipe may use with `ARG`.
fn platform_arguments() -> BTreeMap<String, String> {
    let host = Platform::host();
    let mut known = BTreeMap::new();
    for whose in ["TARGET", "BUILD"] {
        known.insert(format!("{whose}PLATFORM"), host.to_string());
        known.insert(format!("{whose}OS"), host.os.clone());
        known.insert(format!("{whose}ARCH"), host.architecture.clone());
    }
    known
}

fn ignored(
    request: &BuildRequest,
    recipe: &Path,
    within: Option<&Path>,
) -> Result<Ignore, BuildError> {
    // A recipe may have its own ignore file.
    let mut own = recipe.as_os_str().to_owned();
    own.push(IGNORE);
    let own = request.text.is_none().then(|| (PathBuf::from(own), within));
    let usual = (request.context.join(IGNORE), Some(request.context.as_path()));
    for (path, within) in own.into_iter().chain([usual]) {
        match read(&path, within) {
            Ok(text) => {
                return Ignore::parse(&text).map_err(|source| BuildError::Ignore { path, source });
            }
            Err(BuildError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Ignore::default())
}

/// Reads a text within bounds. Links cannot lead out of the directory that must contain it.
fn read(path: &Path, within: Option<&Path>) -> Result<String, BuildError> {
    let failed = |source| BuildError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    // A pipe would be waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match within.zip(path.file_name()) {
        None => rustix::fs::open(path, flags, Mode::empty()),
        Some((context, name)) => {
            let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let context = rustix::fs::open(context, way, Mode::empty());
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            context.and_then(|all| rustix::fs::openat2(all, name, flags, Mode::empty(), within))
        }
    };
    let file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::XDEV) => {
            let why = "a symlink points outside of the context";
            return Err(failed(std::io::Error::new(ErrorKind::PermissionDenied, why)));
        }
        Err(errno) => return Err(failed(errno.into())),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file",
        )));
    }
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
