//! What to keep ready. Pure, except for the look at the host's files that a shape needs.

use std::time::Duration;

use protocol::ContextName;

use super::Shape;
use crate::limits::{POOL_CONTEXTS_MAX, POOL_MACHINES_MAX, POOL_STARTS_MAX};
use crate::startup::{Startup, StartupPlace};
use crate::stored::{HeldImage, ImageSource, RequestedImage};
use crate::{HostFiles, Record, SandboxError, Spec};
use host::instant::now_ms;
use host::paths::Paths;
use machine::{Capability, Directories, MachineKind, MachineSpec, SandboxId};

/// The name of an unclaimed machine; the claimer gives it another.
pub(super) const HOSTNAME: &str = "pooled";

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub entries: Vec<Entry>,
    /// When an unclaimed machine is replaced; never when absent.
    pub age_max: Option<Duration>,
    /// How often each ready machine is checked.
    pub check_every: Duration,
    /// How many machines are started at the same time, for all entries together.
    pub starts_at_once: usize,
}

impl Options {
    /// A pool that keeps nothing.
    pub fn none() -> Self {
        let check_every = crate::limits::POOL_CHECK_EVERY;
        Self { entries: Vec::new(), age_max: None, check_every, starts_at_once: 1 }
    }

    pub(super) fn check(&self, paths: &Paths, files: &HostFiles) -> Result<(), SandboxError> {
        let range = |what, value: usize, min: usize, max: usize| {
            let (value, min, max) = (value as u64, min as u64, max as u64);
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(SandboxError::OutOfRange { what, value, min, max })
            }
        };
        let all = self.entries.iter().map(|entry| entry.count).sum();
        range("the number of pooled machines", all, 0, POOL_MACHINES_MAX)?;
        range("the number of starts at once", self.starts_at_once, 1, POOL_STARTS_MAX)?;
        for entry in &self.entries {
            range("the contexts of a pooled machine", entry.contexts.len(), 0, POOL_CONTEXTS_MAX)?;
            if !entry.machine.is_started() {
                return Err(SandboxError::Unsupported {
                    what: "a pool of external machines",
                    why: "the bridge does not start them",
                    hint: "take the entry out of pool.entries",
                });
            }
            let mut spec = entry.spec();
            if files.place_scratch(&mut spec, paths).is_err() {
                // Each start says so; a disk may have room by then.
                spec.scratch_bytes = None;
            }
            spec.check()?;
        }
        Ok(())
    }
}

/// Machines of one kind and image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name for people: the image's name in the configuration.
    pub name: String,
    pub machine: MachineKind,
    /// The root, or a virtual machine's image; the usual one when absent.
    pub image: Option<String>,
    pub memory_mib: Option<u64>,
    pub cpu_millis: Option<u32>,
    pub scratch_bytes: Option<u64>,
    /// Interpreters that are started ahead, each in the context that has its language's name.
    pub contexts: Vec<ContextName>,
    /// How many are kept ready.
    pub count: usize,
    /// The template that they are made of.
    pub template: Option<TemplateEntry>,
}

/// What the machines of a template are made of, instead of the fields of their entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateEntry {
    pub revision: String,
    /// The specification of a sandbox that asks for nothing but the template.
    pub spec: Spec,
    pub startup: Option<Startup>,
}

impl Entry {
    /// Process machines of the host's root, without limits or contexts.
    pub fn new(name: impl Into<String>, count: usize) -> Self {
        Self {
            name: name.into(),
            machine: MachineKind::default(),
            image: None,
            memory_mib: None,
            cpu_millis: None,
            scratch_bytes: None,
            contexts: Vec::new(),
            count,
            template: None,
        }
    }

    /// For sandboxes of a template, of which so many are kept ready.
    pub fn of_template(name: String, count: usize, template: TemplateEntry) -> Self {
        let spec = &template.spec;
        Self {
            machine: spec.machine(),
            image: spec.image.clone(),
            memory_mib: spec.memory_mib,
            cpu_millis: spec.cpu_millis,
            scratch_bytes: spec.scratch_bytes,
            template: Some(template),
            ..Self::new(name, count)
        }
    }

    pub fn revision(&self) -> Option<&str> {
        self.template.as_ref().map(|template| template.revision.as_str())
    }

    pub(super) fn startup(&self) -> Option<&Startup> {
        self.template.as_ref()?.startup.as_ref()
    }

    /// The start command, which must not have failed when a machine is handed out.
    pub(super) fn start(&self) -> Option<&str> {
        self.startup()?.start.as_deref()
    }

    /// The image of the store that its machines have.
    pub(super) fn wanted(&self, source: &ImageSource) -> Option<RequestedImage> {
        self.template.as_ref().and_then(|template| source.wanted(&template.spec))
    }

    /// The user and the directory that the commands of its template run with.
    pub(super) fn place(&self, image: Option<&HeldImage>) -> StartupPlace {
        let spec = self.template.as_ref().map(|template| &template.spec);
        StartupPlace::of(
            spec.and_then(|spec| spec.user.clone()),
            spec.and_then(|spec| spec.workdir.clone()),
            image,
        )
    }

    /// Whether a machine that is ready is written as a snapshot, and others are restored from it.
    pub(super) fn is_warmed(&self) -> bool {
        self.template.is_some() && self.machine.can(Capability::Snapshot)
    }

    /// The record of a machine for this entry, for the description of a snapshot of it.
    pub(super) fn record(&self, id: SandboxId) -> Record {
        let mut spec = self.spec();
        if let Some(template) = &self.template {
            spec.name = template.spec.name.clone();
        }
        Record::new(id, &spec, now_ms())
    }

    fn spec(&self) -> Spec {
        if let Some(template) = &self.template {
            let mut spec = template.spec.clone();
            spec.hostname = Some(HOSTNAME.to_owned());
            return spec;
        }
        let mut spec = Spec::new(HOSTNAME.parse().expect("it is a name"));
        spec.machine = Some(self.machine);
        spec.image.clone_from(&self.image);
        spec.memory_mib = self.memory_mib;
        spec.cpu_millis = self.cpu_millis;
        spec.scratch_bytes = self.scratch_bytes;
        spec
    }

    /// The machine to start for this entry.
    pub(super) async fn machine_spec(
        &self,
        id: SandboxId,
        paths: &Paths,
        files: &HostFiles,
        directories: Option<Directories>,
    ) -> Result<MachineSpec, SandboxError> {
        let mut spec = self.spec();
        files.settle_scratch(&mut spec, paths).await?;
        Ok(spec.machine_spec(id, paths, files, directories))
    }

    /// The shape of a machine for this entry, with the host's files as they are now.
    pub(super) fn shape(&self, paths: &Paths, files: &HostFiles) -> Option<Shape> {
        let nobody: SandboxId = "000000000000".parse().expect("twelve digits");
        let mut spec = self.spec();
        files.place_scratch(&mut spec, paths).ok()?;
        let shape = Shape::of(&spec, &spec.machine_spec(nobody, paths, files, None))?;
        Some(shape.of_template(self.revision().map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(options: &Options) -> Result<(), SandboxError> {
        let paths = Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() };
        options.check(&paths, &HostFiles::default())
    }

    #[test]
    fn a_pool_has_a_bound_over_all_entries() {
        let entries = vec![Entry::new("a", POOL_MACHINES_MAX), Entry::new("b", 1)];
        let refused = checked(&Options { entries, ..Options::none() }).unwrap_err();
        assert!(refused.to_string().contains(&POOL_MACHINES_MAX.to_string()), "{refused}");
        let entries = vec![Entry::new("a", POOL_MACHINES_MAX)];
        checked(&Options { entries, ..Options::none() }).unwrap();
    }

    #[test]
    fn unstartable_pool_entries_are_refused() {
        let refused = |change: fn(&mut Entry)| {
            let mut entry = Entry::new("a", 1);
            change(&mut entry);
            checked(&Options { entries: vec![entry], ..Options::none() }).unwrap_err().to_string()
        };
        assert!(refused(|entry| entry.machine = MachineKind::External).contains("external"));
        assert!(refused(|entry| entry.memory_mib = Some(1)).contains("memory_mib"));
        let none_at_once = Options { starts_at_once: 0, ..Options::none() };
        assert!(checked(&none_at_once).is_err());
    }
}
