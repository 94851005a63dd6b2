//! The specification of a sandbox, and the machine that follows from it.

pub(super) mod unsupported;

use std::path::{Path, PathBuf};

use protocol::ids::is_name;
use serde::{Deserialize, Serialize};

use super::host_files::{HOST_ROOT, HostFiles};
use super::label::{self, Labels};
use super::{
    Durability, Followed, Name, OnIdle, OnLost, RecordPolicy, SandboxError, SandboxRef,
    TemplateName, host_packages,
};
use crate::limits::{
    CPU_MILLIS_MAX, CPU_MILLIS_MIN, LIFETIME_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN,
    SCRATCH_BYTES_DEFAULT, SCRATCH_QUARTERS_OF_MEMORY, USER_BYTES_MAX, VIRTUAL_SCRATCH_BYTES_MAX,
    WORKDIR_BYTES_MAX,
};
use agent_client::link::Address;
use egress::Rules;
use host::paths::Paths;
use host::places;
use image::Pull;
use machine::limits::{
    SCRATCH_BYTES_MIN, SCRATCH_DISK_BYTES_MAX, SCRATCH_DISK_BYTES_MIN,
    VIRTUAL_MEMORY_BYTES_DEFAULT, VIRTUAL_SCRATCH_PART_OF_MEMORY,
};
use machine::process::hide;
use machine::{Bounds, Capability, Directories, MachineKind, MachineSpec, SandboxId, ScratchPlace};
use workspace::{WORKSPACE, volume::VolumeMount};

const BYTES_PER_MIB: u64 = 1024 * 1024;

/// pip asks an index that it cannot reach five times more, for many seconds. Where nothing can be reached, once is enough.
const ASKS_ONCE: (&str, &str) = ("PIP_RETRIES", "0");

/// A sandbox to start. Fields that a request leaves out have the defaults of [`Spec::new`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    #[serde(default = "Name::default_namespace")]
    pub namespace: Name,
    pub name: Name,
    /// The bridge's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
    /// The root file system. On a process machine it is a directory, [`HostFiles`]'s choice if absent. On a
    /// virtual machine it is an image by its name in the kit or its path, the kit's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The image that `image` was made from, if packages were added: the policy of images applies to that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The directory of packages that were installed for it over the host's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<PathBuf>,
    /// Whether the image is pulled from its registry; the operator's setting if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The snapshot of its namespace to restore, instead of booting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Name>,
    /// The template of its namespace that it is made of: that sets what is absent here, and is made ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateName>,
    /// Where the agent of an external machine listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The environment of every program. Values may be secrets: they are passed to the machine and
    /// stored nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// The name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// On disk, what suits the free room if absent; in memory [`SCRATCH_BYTES_DEFAULT`], or what the memory
    /// leaves of it; on a virtual machine what fits its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_bytes: Option<u64>,
    /// Whether the writable layer of a process machine is on the host's disk. [`HostFiles`] decides it when
    /// the sandbox is made, whatever is here.
    #[serde(skip)]
    pub is_on_disk: bool,
    /// Paths that programs must not see. If absent, the credentials of [`hide::HIDDEN_OF_SYSTEM`]
    /// and [`hide::HIDDEN_IN_HOME`], as far as the root contains them. The bridge's and the
    /// operator's own files are always hidden. Only a process machine can see the host's files;
    /// other machines hide only what is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hide: Option<Vec<String>>,
    /// The memory limit of all its processes together, including what they write to its layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Thousandths of one processor; 0 asks for the smallest share, [`CPU_MILLIS_MIN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// The default working directory. It is stored for those who start programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The default user of programs; the image's user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// How long it lives from its creation, even if it is active; without limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long it may be idle; without limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
    /// What happens then; it ends if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_idle: Option<OnIdle>,
    /// Labels that the node of a fleet must have which makes it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub node_labels: Labels,
    /// Whether what its programs write outlives the host; it does not if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// What is recorded of its sessions; their output if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordPolicy>,
    /// What becomes of it when it is lost with its node; it is gone if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lost: Option<OnLost>,
    /// The lost sandbox that it follows. Only the fleet says so.
    #[serde(skip)]
    pub follows: Option<Followed>,
    /// How long its record and logs are kept after it has stopped; until they are removed if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_stopped_ms: Option<u64>,
    /// What it may reach, as rules of [`egress::Rules`]; an empty list allows nothing. If absent,
    /// the operator's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    /// What it has at `/workspace`: a workspace by its name in the bridge's configuration, or a directory of
    /// the host by its absolute path. The entrances decide who may name a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether that directory itself is there, and no copy: for one that is named by its path. Of a
    /// workspace of the configuration, the configuration says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount: bool,
    /// Volumes of its namespace, each at a path. Directories of the host are refused, and so are `ports`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Secrets by their names in the bridge's configuration. Their values are passed to the machine
    /// and stored nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The id of the key that requests it, and whose caps it counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl Spec {
    pub fn new(which: SandboxRef) -> Self {
        Self {
            namespace: which.namespace,
            name: which.name,
            machine: None,
            image: None,
            base: None,
            packages: None,
            pull: None,
            snapshot: None,
            template: None,
            address: None,
            env: Vec::new(),
            hostname: None,
            scratch_bytes: None,
            is_on_disk: false,
            hide: None,
            memory_mib: None,
            cpu_millis: None,
            workdir: None,
            user: None,
            labels: Labels::new(),
            ttl_ms: None,
            idle_ttl_ms: None,
            on_idle: None,
            node_labels: Labels::new(),
            durability: None,
            record: None,
            on_lost: None,
            follows: None,
            keep_stopped_ms: None,
            egress: None,
            workspace: None,
            mount: false,
            volumes: Vec::new(),
            secrets: Vec::new(),
            ports: Vec::new(),
            key: None,
        }
    }

    pub fn which(&self) -> SandboxRef {
        SandboxRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The kind of machine, for a bridge without a default of its own.
    pub fn machine(&self) -> MachineKind {
        self.machine.unwrap_or_default()
    }

    /// Whether it is paused when it is idle, in memory or on disk.
    pub(super) fn sleeps(&self) -> bool {
        self.on_idle.is_some_and(|then| !then.is_stop())
    }

    pub fn hostname(&self) -> &str {
        self.hostname.as_deref().unwrap_or(self.name.as_str())
    }

    pub fn scratch_bytes(&self) -> u64 {
        let usual = if self.machine().is_virtual() {
            let memory = self
                .memory_mib
                .map_or(VIRTUAL_MEMORY_BYTES_DEFAULT, |mib| mib.saturating_mul(BYTES_PER_MIB));
            memory / VIRTUAL_SCRATCH_PART_OF_MEMORY
        } else {
            SCRATCH_BYTES_DEFAULT
        };
        self.scratch_bytes.unwrap_or(usual.min(self.scratch_bytes_max()))
    }

    /// The largest writable layer: limited by the memory, unless it can be on a disk.
    pub(super) fn scratch_bytes_max(&self) -> u64 {
        if self.machine().is_virtual() {
            return VIRTUAL_SCRATCH_BYTES_MAX;
        }
        if self.is_on_disk {
            return SCRATCH_DISK_BYTES_MAX;
        }
        self.memory_mib.map_or(SCRATCH_DISK_BYTES_MAX, |mib| {
            mib.saturating_mul(BYTES_PER_MIB / 4 * SCRATCH_QUARTERS_OF_MEMORY)
        })
    }

    /// Where the writable layer over the host's root is.
    pub(super) fn scratch_place(&self) -> Option<ScratchPlace> {
        let place = if self.is_on_disk { ScratchPlace::Disk } else { ScratchPlace::Memory };
        self.machine().sees_host().then_some(place)
    }

    /// Refuses a writable layer that is too small or too large for its place.
    pub(super) fn check_scratch(&self) -> Result<(), SandboxError> {
        let min = if self.is_on_disk { SCRATCH_DISK_BYTES_MIN } else { SCRATCH_BYTES_MIN };
        check_range("scratch_bytes", self.scratch_bytes, min, self.scratch_bytes_max())
    }

    /// The share of processors that it gets.
    pub fn cpu_millis(&self) -> Option<u32> {
        self.cpu_millis.map(|millis| millis.max(CPU_MILLIS_MIN))
    }

    /// Refuses invalid values, and what no machine of the kind could do.
    pub fn check(&self) -> Result<(), SandboxError> {
        if !is_name(self.hostname(), b"_-") {
            return Err(SandboxError::Hostname { hostname: self.hostname().to_owned() });
        }
        let broken = self.env.iter().find(|(name, value)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        });
        if let Some((name, _)) = broken {
            return Err(SandboxError::Environment { name: name.clone() });
        }
        if let Some(workdir) = &self.workdir
            && (!workdir.starts_with('/')
                || workdir.contains('\0')
                || workdir.len() > WORKDIR_BYTES_MAX)
        {
            return Err(SandboxError::Workdir { workdir: workdir.clone() });
        }
        if let Some(user) = &self.user
            && (user.is_empty() || user.len() > USER_BYTES_MAX || user.contains(['\0', '\n']))
        {
            return Err(SandboxError::User { user: user.clone() });
        }
        label::check(&self.labels)?;
        label::check(&self.node_labels)?;
        check_range("memory_mib", self.memory_mib, MEMORY_MIB_MIN, MEMORY_MIB_MAX)?;
        self.check_scratch()?;
        check_range("cpu_millis", self.cpu_millis.map(u64::from), 0, CPU_MILLIS_MAX.into())?;
        check_lifetime("ttl_ms", self.ttl_ms)?;
        check_lifetime("idle_ttl_ms", self.idle_ttl_ms)?;
        if let Some(then) = self.on_idle.filter(|_| self.sleeps() && self.idle_ttl_ms.is_none()) {
            return Err(SandboxError::NeverIdle { then });
        }
        // A record may go in the moment in which its sandbox has stopped.
        check_range("keep_stopped_ms", self.keep_stopped_ms, 0, LIFETIME_MAX.as_millis() as u64)?;
        unsupported::check(self)?;
        self.rules().map(drop)
    }

    /// Refuses what no machine of any host could do, before a host is chosen: a node that makes a sandbox
    /// for another does not learn of it.
    pub fn check_everywhere(&self) -> Result<(), SandboxError> {
        unsupported::check_everywhere(self)
    }

    /// The egress rules.
    pub(super) fn rules(&self) -> Result<Rules, SandboxError> {
        Ok(Rules::parse(self.egress.as_deref().unwrap_or_default())?)
    }

    /// Sets the working directory if none was requested: the workspace, if there is one. Otherwise the image
    /// sets it, and finally the agent.
    pub(super) fn settle_workdir(&mut self) {
        let workspace = self.workspace.as_ref().map(|_| WORKSPACE.to_owned());
        self.workdir = self.workdir.take().or(workspace);
    }

    /// Sets the rules of egress if none were requested. The bridge does not decide about an external machine.
    pub(super) fn settle_egress(&mut self, default: &[String]) -> Result<(), SandboxError> {
        if self.egress.is_none() && self.machine().can(Capability::Egress) {
            self.egress = Some(default.to_vec());
        }
        if self.rules()?.is_empty() {
            self.egress = None;
        }
        Ok(())
    }

    /// The machine for this sandbox. Looks at the host's files, but changes none.
    pub(super) fn machine_spec(
        &self,
        id: SandboxId,
        paths: &Paths,
        files: &HostFiles,
        directories: Option<Directories>,
    ) -> MachineSpec {
        // A virtual machine's root is in its image, even if the host has a directory of that name.
        let directory = self.image.as_deref().filter(|_| !self.machine().is_virtual());
        let named = PathBuf::from(directory.unwrap_or(HOST_ROOT));
        // The machine reports a root that does not exist.
        let root = named.canonicalize().unwrap_or(named);
        MachineSpec {
            id,
            hostname: self.hostname().to_owned(),
            hide: self.hidden(&root, paths, files),
            root,
            image: self.image.clone(),
            scratch_bytes: self.scratch_bytes(),
            scratch_disk: self.is_on_disk.then(|| paths.state.clone()),
            confinement: files.confinement,
            bounds: Bounds {
                memory_bytes: self.memory_mib.map(|mib| mib * BYTES_PER_MIB),
                cpu_millis: self.cpu_millis(),
            },
            env: self.environment(),
            // The code that creates the sandbox adds them at the last moment.
            secrets: Vec::new(),
            directories,
            address: self.address.clone(),
            restore: self.snapshot.as_ref().map(|name| {
                paths.snapshots().join(self.namespace.as_str()).join(name.as_str()).join("machine")
            }),
            // It is known when its workspace is.
            bind: None,
        }
    }

    /// Whether there is no way out of it. Who connects to an external machine does not know.
    fn reaches_nothing(&self) -> bool {
        self.machine().can(Capability::Egress) && self.egress.as_ref().is_none_or(Vec::is_empty)
    }

    /// The environment of its programs, with what its packages need. Its rules of egress are settled.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let mut env = self.env.clone();
        let (name, value) = ASKS_ONCE;
        if self.reaches_nothing() && !env.iter().any(|(set, _)| set == name) {
            env.push((name.to_owned(), value.to_owned()));
        }
        if let Some(directory) = &self.packages {
            host_packages::add_to(directory, &mut env);
        }
        env
    }

    fn hidden(&self, root: &Path, paths: &Paths, files: &HostFiles) -> Vec<String> {
        let mut hidden = self.hide.clone().unwrap_or_default();
        if self.machine().sees_host() {
            let homes = places::homes();
            if self.hide.is_none() {
                hidden.extend(hide::all_seen_through(root, &hide::hidden_on_host(&homes)));
            }
            // A reader of these files could control the other sandboxes. Others need not know where they are.
            hidden.extend(hide::all_seen_through(root, [&paths.runtime, &paths.state]));
            hidden.extend(files.hidden_below(root, &homes));
        }
        hidden.sort();
        hidden.dedup();
        hidden
    }
}

/// A time to live that is absent, or one that a sandbox could have.
pub(super) fn check_lifetime(what: &'static str, ms: Option<u64>) -> Result<(), SandboxError> {
    check_range(what, ms, 1, LIFETIME_MAX.as_millis() as u64)
}

fn check_range(
    what: &'static str,
    value: Option<u64>,
    min: u64,
    max: u64,
) -> Result<(), SandboxError> {
    match value {
        Some(value) if !(min..=max).contains(&value) => {
            Err(SandboxError::OutOfRange { what, value, min, max })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
