//! What shall be kept ready. Pure but for the look at the host's files that a shape takes.

use std::time::Duration;

use protocol::ContextName;

use super::Shape;
use crate::limits::{POOL_CONTEXTS_MAX, POOL_MACHINES_MAX, POOL_STARTS_MAX};
use crate::{SandboxError, Spec};
use host::paths::Paths;
use machine::{Directories, MachineKind, MachineSpec, SandboxId};

/// The name of a machine that is nobody's yet; whoever claims it gives it another.
const HOSTNAME: &str = "pooled";

/// What a pool keeps, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub entries: Vec<Entry>,
    /// When an unclaimed machine is replaced; never when absent.
    pub age_max: Option<Duration>,
    /// How often each ready machine is asked whether it lives.
    pub check_every: Duration,
    /// How many machines are started at the same time, of all entries together.
    pub starts_at_once: usize,
}

impl Options {
    /// A pool that keeps nothing.
    pub fn none() -> Self {
        let check_every = crate::limits::POOL_CHECK_EVERY;
        Self { entries: Vec::new(), age_max: None, check_every, starts_at_once: 1 }
    }

    pub(super) fn check(&self) -> Result<(), SandboxError> {
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
            entry.spec().check()?;
        }
        Ok(())
    }
}

/// Machines of one kind and image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What people call it: the image's name in the configuration.
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
}

impl Entry {
    /// Process machines of the host's root, without bounds or contexts.
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
        }
    }

    fn spec(&self) -> Spec {
        let mut spec = Spec::new(HOSTNAME.parse().expect("it is a name"));
        spec.machine = self.machine;
        spec.image.clone_from(&self.image);
        spec.memory_mib = self.memory_mib;
        spec.cpu_millis = self.cpu_millis;
        spec.scratch_bytes = self.scratch_bytes;
        spec
    }

    /// The machine to start for this entry.
    pub(super) fn machine_spec(
        &self,
        id: SandboxId,
        paths: &Paths,
        directories: Option<Directories>,
    ) -> MachineSpec {
        self.spec().machine_spec(id, paths, directories)
    }

    /// What a machine for this entry is like, as the host's files are now.
    pub(super) fn shape(&self, paths: &Paths) -> Option<Shape> {
        let nobody: SandboxId = "000000000000".parse().expect("twelve digits");
        Shape::of(&self.spec(), &self.machine_spec(nobody, paths, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_a_bound_over_all_entries() {
        let entries = vec![Entry::new("a", POOL_MACHINES_MAX), Entry::new("b", 1)];
        let refused = Options { entries, ..Options::none() }.check().unwrap_err();
        assert!(refused.to_string().contains(&POOL_MACHINES_MAX.to_string()), "{refused}");
        let entries = vec![Entry::new("a", POOL_MACHINES_MAX)];
        Options { entries, ..Options::none() }.check().unwrap();
    }

    #[test]
    fn what_a_pool_cannot_start_is_refused() {
        let refused = |change: fn(&mut Entry)| {
            let mut entry = Entry::new("a", 1);
            change(&mut entry);
            Options { entries: vec![entry], ..Options::none() }.check().unwrap_err().to_string()
        };
        assert!(refused(|entry| entry.machine = MachineKind::External).contains("external"));
        assert!(refused(|entry| entry.memory_mib = Some(1)).contains("memory_mib"));
        let none_at_once = Options { starts_at_once: 0, ..Options::none() };
        assert!(none_at_once.check().is_err());
    }
}
