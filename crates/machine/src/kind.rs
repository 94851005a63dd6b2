//! The kinds of machine: one table, with a row for each.
//!
//! A row holds what the other parts of the bridge need to know about a kind: its name, its root, what it
//! cannot do, the programs that it needs. Settings, command line, API, doctor and the checks of a sandbox's
//! options read the row; a test compares docs/reference/machines.md with it. How a kind works is in its own
//! file, and nothing outside this crate asks which kind a machine is.
//!
//! A new kind is a variant of [`MachineKind`], a row of the table, and a file with its
//! [`Machine`](crate::Machine).

mod table;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::table::PROFILES;
use crate::vmm::find_program;
use crate::{Machine, MachineError};

/// How many kinds there are.
const KINDS: usize = PROFILES.len();

/// The kinds of machine that this bridge can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MachineKind {
    #[default]
    Process,
    Qemu,
    Firecracker,
    CloudHypervisor,
    External,
}

/// The row of a kind.
pub struct Profile {
    pub kind: MachineKind,
    /// Its name in configuration, on the wire and on disk.
    pub name: &'static str,
    /// A description in one sentence.
    pub about: &'static str,
    /// Whether the bridge starts machines of this kind, instead of connecting to one.
    pub is_started: bool,
    /// Whether it boots its own kernel, from an image of the kit.
    pub is_virtual: bool,
    /// Its root if no image is named.
    pub root: Root,
    /// When a directory of the host can be mounted in it.
    pub mount: Mount,
    /// What it cannot do, with reasons.
    pub lacks: &'static [Lack],
    /// What `doctor` checks for it, in addition to the kit of virtual machines.
    pub programs: &'static [Program],
    pub hypervisor: Hypervisor,
    /// How long a start may take, until the agent has answered.
    pub start_deadline: Duration,
    /// The implementation.
    machine: fn() -> Arc<dyn Machine>,
}

/// The root of a machine if no image is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The root of this host, read-only below a writable layer.
    Host,
    /// This image of the kit.
    Kit(&'static str),
    /// What the operator of the machine has given it.
    Own,
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "(the host's root)",
            Self::Kit(image) => image,
            Self::Own => "(its own)",
        })
    }
}

/// When a directory of the host can be mounted in a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    Never,
    /// While it runs.
    Running,
    /// Only at boot, so it must be known before the start.
    AtBoot,
}

/// Options of a sandbox that one kind of machine honours and another cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    Image,
    Hostname,
    Environment,
    Secrets,
    Memory,
    Cpus,
    Scratch,
    Egress,
    Workspace,
    Mount,
    Pause,
    Snapshot,
    /// Snapshots that another host can use.
    Export,
}

/// Something that a kind cannot do. A sandbox that asks for it is refused: one that silently got
/// more or less than it asked for would be trusted wrongly.
#[derive(Clone, Copy, Debug)]
pub struct Lack {
    pub capability: Capability,
    pub why: &'static str,
    /// What to do instead.
    pub hint: &'static str,
}

/// A program that a kind needs on this host.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its label in `doctor`.
    pub label: &'static str,
    /// Its name on the `PATH`.
    pub name: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

impl Program {
    /// Its path, or what to do about its absence.
    pub fn find(&self) -> Result<PathBuf, MachineError> {
        find_program(self.name).ok_or_else(|| self.missing())
    }

    pub(crate) fn missing(&self) -> MachineError {
        MachineError::Program { name: self.name, remedy: self.remedy }
    }
}

/// Whether a kind uses the host's hypervisor, KVM. Its first program is the one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hypervisor {
    Unused,
    /// It is faster with it.
    Optional,
    Required,
}

impl MachineKind {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; KINDS] = {
        let mut all = [Self::Process; KINDS];
        let mut at = 0;
        while at < KINDS {
            all[at] = PROFILES[at].kind;
            at += 1;
        }
        all
    };

    /// The names of all kinds.
    pub const NAMES: [&'static str; KINDS] = {
        let mut names = [""; KINDS];
        let mut at = 0;
        while at < KINDS {
            names[at] = PROFILES[at].name;
            at += 1;
        }
        names
    };

    /// The names of the kinds that the bridge starts.
    pub const STARTED_NAMES: [&'static str; STARTED] = {
        let mut names = [""; STARTED];
        let (mut at, mut found) = (0, 0);
        while at < KINDS {
            if PROFILES[at].is_started {
                names[found] = PROFILES[at].name;
                found += 1;
            }
            at += 1;
        }
        names
    };

    pub fn profile(self) -> &'static Profile {
        // The table is in the order of the variants, which a test checks.
        &PROFILES[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.profile().name
    }

    /// Whether it boots its own kernel, from an image of the kit.
    pub fn is_virtual(self) -> bool {
        self.profile().is_virtual
    }

    /// Whether the bridge starts machines of this kind, instead of connecting to one.
    pub fn is_started(self) -> bool {
        self.profile().is_started
    }

    /// Whether paths of this host are visible in it.
    pub fn sees_host(self) -> bool {
        self.profile().root == Root::Host
    }

    pub fn can(self, capability: Capability) -> bool {
        self.lack(capability).is_none()
    }

    /// Why it cannot do this; `None` if it can.
    pub fn lack(self, capability: Capability) -> Option<&'static Lack> {
        self.profile().lacks.iter().find(|lack| lack.capability == capability)
    }

    /// Whether a mounted directory must be known when the machine is started.
    pub fn mounts_at_boot(self) -> bool {
        self.profile().mount == Mount::AtBoot
    }
}

/// How many kinds the bridge starts.
const STARTED: usize = {
    let (mut at, mut found) = (0, 0);
    while at < KINDS {
        if PROFILES[at].is_started {
            found += 1;
        }
        at += 1;
    }
    found
};

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No kind of machine has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of machine; there are {all}", all = quoted_names())]
pub struct UnknownMachine(pub String);

fn quoted_names() -> String {
    let quoted = MachineKind::NAMES.map(|name| format!("{name:?}"));
    let (last, first) = quoted.split_last().expect("the table is not empty");
    format!("{} and {last}", first.join(", "))
}

impl FromStr for MachineKind {
    type Err = UnknownMachine;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| UnknownMachine(text.to_owned()))
    }
}

impl Serialize for MachineKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for MachineKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let unknown = |_| serde::de::Error::unknown_variant(&text, &Self::NAMES);
        text.parse().map_err(unknown)
    }
}

/// The implementation of each kind.
#[derive(Clone)]
pub struct Machines([Arc<dyn Machine>; KINDS]);

impl Machines {
    pub fn get(&self, kind: MachineKind) -> &Arc<dyn Machine> {
        &self.0[kind as usize]
    }

    /// Replaces the implementation of one kind.
    #[must_use]
    pub fn with(mut self, kind: MachineKind, machine: Arc<dyn Machine>) -> Self {
        self.0[kind as usize] = machine;
        self
    }

    /// One implementation for all kinds, for tests of the parts above.
    pub fn all(machine: &Arc<dyn Machine>) -> Self {
        Self(MachineKind::ALL.map(|_| Arc::clone(machine)))
    }
}

impl Default for Machines {
    fn default() -> Self {
        Self(MachineKind::ALL.map(|kind| (kind.profile().machine)()))
    }
}

#[cfg(test)]
mod tests;
