//! What a sandbox shall be, as it is asked for, and the machine that follows from it.

pub(super) mod unsupported;

use std::path::{Path, PathBuf};

use protocol::ids::is_name;
use serde::{Deserialize, Serialize};

use super::label::{self, Labels};
use super::{Name, SandboxError, SandboxRef};
use crate::limits::{
    CPU_MILLIS_MAX, CPU_MILLIS_MIN, LIFETIME_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN,
    SCRATCH_BYTES_DEFAULT, SCRATCH_QUARTERS_OF_MEMORY, USER_BYTES_MAX, VIRTUAL_SCRATCH_BYTES_MAX,
    WORKDIR_BYTES_MAX,
};
use agent_client::link::Address;
use egress::Rules;
use host::paths::Paths;
use image::Pull;
use machine::limits::{VIRTUAL_MEMORY_BYTES_DEFAULT, VIRTUAL_SCRATCH_PART_OF_MEMORY};
use machine::process::hide;
use machine::{Bounds, Capability, Directories, MachineKind, MachineSpec, SandboxId};

/// The root of a process machine that names no image.
const HOST_ROOT: &str = "/";
const BYTES_PER_MIB: u64 = 1024 * 1024;

/// A sandbox to start. Fields that a request leaves out have the defaults of [`Spec::new`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    #[serde(default = "Name::default_namespace")]
    pub namespace: Name,
    pub name: Name,
    #[serde(default)]
    pub machine: MachineKind,
    /// The root file system: on a process machine a directory, the host's own root when absent; on a
    /// virtual machine an image by its name in the kit or its path, the kit's usual one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether the image is pulled from its registry; what the operator has set when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The snapshot of its namespace that it goes on from, instead of booting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Name>,
    /// Where the agent of an external machine listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The environment of every program. Values may be secrets: they go to the machine and are
    /// kept nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// The name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// [`SCRATCH_BYTES_DEFAULT`] when absent, or what the memory leaves of it; on a virtual machine
    /// what fits its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_bytes: Option<u64>,
    /// Paths that programs must not see. When absent, the credentials of
    /// [`hide::HIDDEN_OF_SYSTEM`] and [`hide::HIDDEN_IN_HOME`] over the host's root, and nothing
    /// over any other. The bridge's own directories are always hidden. Only a process machine can
    /// see the host's files; of others this hides what is asked for, and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hide: Option<Vec<String>>,
    /// The most memory of all its processes together, what they write to its layer included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Thousandths of one processor; 0 asks for the smallest share, [`CPU_MILLIS_MIN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Where programs begin that name no directory. It is kept for those who start programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Who programs run as that name nobody; the image's user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// How long it lives from its creation, whatever it is doing then; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long it lives while nothing is at work in it; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
    /// How long its record and logs are kept when it has stopped; until they are removed when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_stopped_ms: Option<u64>,
    /// What it may reach, as rules of [`egress::Rules`]; an empty list means nothing at all.
    /// When absent, what the operator has set for those who do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    /// What it has at `/workspace`: a workspace by its name in the bridge's configuration, or a
    /// directory of the host by its absolute path. Those who let callers through decide who may say one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether that directory itself is there, and no copy: for one that is named by its path. Of a
    /// workspace of the configuration, the configuration says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount: bool,
    /// What no machine can do yet is refused with the reason, instead of being forgotten: mounts,
    /// ports published on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Secrets by their names in the bridge's configuration. Their values go to the machine and are
    /// kept nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The id of the key that asks for it, whose caps it counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl Spec {
    pub fn new(which: SandboxRef) -> Self {
        Self {
            namespace: which.namespace,
            name: which.name,
            machine: MachineKind::default(),
            image: None,
            pull: None,
            snapshot: None,
            address: None,
            env: Vec::new(),
            hostname: None,
            scratch_bytes: None,
            hide: None,
            memory_mib: None,
            cpu_millis: None,
            workdir: None,
            user: None,
            labels: Labels::new(),
            ttl_ms: None,
            idle_ttl_ms: None,
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

    pub fn hostname(&self) -> &str {
        self.hostname.as_deref().unwrap_or(self.name.as_str())
    }

    pub fn scratch_bytes(&self) -> u64 {
        let usual = if self.machine.is_virtual() {
            let memory = self
                .memory_mib
                .map_or(VIRTUAL_MEMORY_BYTES_DEFAULT, |mib| mib.saturating_mul(BYTES_PER_MIB));
            memory / VIRTUAL_SCRATCH_PART_OF_MEMORY
        } else {
            SCRATCH_BYTES_DEFAULT
        };
        self.scratch_bytes.unwrap_or(usual.min(self.scratch_bytes_max()))
    }

    /// What the writable layer may take: of the memory, unless it can be on a disk.
    fn scratch_bytes_max(&self) -> u64 {
        if self.machine.is_virtual() {
            return VIRTUAL_SCRATCH_BYTES_MAX;
        }
        self.memory_mib.map_or(u64::MAX, |mib| {
            mib.saturating_mul(BYTES_PER_MIB / 4 * SCRATCH_QUARTERS_OF_MEMORY)
        })
    }

    /// The share of processors that it gets.
    pub fn cpu_millis(&self) -> Option<u32> {
        self.cpu_millis.map(|millis| millis.max(CPU_MILLIS_MIN))
    }

    /// Refuses what breaks a rule, and what no machine of the kind could do.
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
        check_range("memory_mib", self.memory_mib, MEMORY_MIB_MIN, MEMORY_MIB_MAX)?;
        check_range("scratch_bytes", self.scratch_bytes, 0, self.scratch_bytes_max())?;
        check_range("cpu_millis", self.cpu_millis.map(u64::from), 0, CPU_MILLIS_MAX.into())?;
        check_lifetime("ttl_ms", self.ttl_ms)?;
        check_lifetime("idle_ttl_ms", self.idle_ttl_ms)?;
        // A record may go in the moment in which its sandbox has stopped.
        check_range("keep_stopped_ms", self.keep_stopped_ms, 0, LIFETIME_MAX.as_millis() as u64)?;
        unsupported::check(self)?;
        self.rules().map(drop)
    }

    /// The egress rules.
    pub(super) fn rules(&self) -> Result<Rules, SandboxError> {
        Ok(Rules::parse(self.egress.as_deref().unwrap_or_default())?)
    }

    /// Settles what it may reach if nobody has said it. What an external machine may, is not the bridge's
    /// to say.
    pub(super) fn settle_egress(&mut self, default: &[String]) -> Result<(), SandboxError> {
        if self.egress.is_none() && self.machine.can(Capability::Egress) {
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
        directories: Option<Directories>,
    ) -> MachineSpec {
        // The root of a virtual machine is in its image, whatever the host has of that name.
        let directory = self.image.as_deref().filter(|_| !self.machine.is_virtual());
        let named = PathBuf::from(directory.unwrap_or(HOST_ROOT));
        // The machine says what is wrong with a root that is not there.
        let root = named.canonicalize().unwrap_or(named);
        MachineSpec {
            id,
            hostname: self.hostname().to_owned(),
            hide: self.hidden(&root, paths),
            root,
            image: self.image.clone(),
            scratch_bytes: self.scratch_bytes(),
            bounds: Bounds {
                memory_bytes: self.memory_mib.map(|mib| mib * BYTES_PER_MIB),
                cpu_millis: self.cpu_millis(),
            },
            env: self.env.clone(),
            // Those who make the sandbox put them in, at the last moment.
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

    fn hidden(&self, root: &Path, paths: &Paths) -> Vec<String> {
        let sees_host = self.machine.sees_host();
        let mut hidden = match &self.hide {
            Some(asked_for) => asked_for.clone(),
            None if sees_host && root == Path::new(HOST_ROOT) => hide::hidden_on_host(),
            None => Vec::new(),
        };
        // Whoever reads these commands the other sandboxes. Others need not know where they are.
        for own in [&paths.runtime, &paths.state].into_iter().filter(|_| sees_host) {
            let real = own.canonicalize().unwrap_or_else(|_| own.clone());
            hidden.extend(hide::seen_through(root, &real));
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
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() }
    }

    fn machine(spec: &Spec) -> MachineSpec {
        spec.machine_spec("0123456789ab".parse().unwrap(), &paths(), None)
    }

    #[test]
    fn defaults_are_the_hosts_root_with_its_credentials_hidden() {
        let spec = Spec::new("web".parse().unwrap());
        let machine = machine(&spec);
        assert_eq!(machine.root, Path::new("/"));
        assert_eq!(machine.hostname, "web");
        assert_eq!(machine.scratch_bytes, SCRATCH_BYTES_DEFAULT);
        assert!(machine.hide.contains(&"/nowhere/state".to_owned()), "{:?}", machine.hide);
        if Path::new("/etc/shadow").exists() {
            assert!(machine.hide.contains(&"/etc/shadow".to_owned()));
        }
    }

    #[test]
    fn the_bridges_own_directories_stay_hidden_whatever_is_asked_for() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.hide = Some(vec!["/opt".to_owned()]);
        assert_eq!(machine(&spec).hide, ["/nowhere/run", "/nowhere/state", "/opt"]);
    }

    #[test]
    fn another_root_hides_nothing_by_itself() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.image = Some("/usr".to_owned());
        assert!(machine(&spec).hide.is_empty());
    }

    #[test]
    fn paths_of_the_host_stay_out_of_machines_that_do_not_see_it() {
        for kind in MachineKind::ALL.into_iter().filter(|kind| *kind != MachineKind::Process) {
            let mut spec = Spec::new("web".parse().unwrap());
            spec.machine = kind;
            assert_eq!(machine(&spec).hide, [""; 0], "{kind}");
            spec.hide = Some(vec!["/opt".to_owned()]);
            assert_eq!(machine(&spec).hide, ["/opt"], "{kind}");
        }
    }

    #[test]
    fn a_name_alone_is_a_whole_request_and_unknown_fields_are_refused() {
        let spec: Spec = serde_json::from_str(r#"{"name":"web"}"#).unwrap();
        assert_eq!(spec, Spec::new("web".parse().unwrap()));
        assert!(serde_json::from_str::<Spec>(r#"{"name":"web","imgae":"/x"}"#).is_err());
    }

    #[test]
    fn an_environment_name_with_an_equals_sign_is_refused() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.env = vec![("A=B".to_owned(), String::new())];
        assert!(matches!(spec.check(), Err(SandboxError::Environment { .. })));
        spec.env.clear();
        spec.hostname = Some("a.b c".to_owned());
        assert!(matches!(spec.check(), Err(SandboxError::Hostname { .. })));
    }
    #[test]
    fn the_smallest_share_of_processors_is_what_zero_asks_for() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.cpu_millis = Some(0);
        spec.memory_mib = Some(512);
        assert_eq!(spec.check().map(|()| spec.cpu_millis()).unwrap(), Some(CPU_MILLIS_MIN));
        let bounds = machine(&spec).bounds;
        assert_eq!((bounds.memory_bytes, bounds.cpu_millis), (Some(512 << 20), Some(50)));
    }

    #[test]
    fn what_nobody_names_is_the_default_and_what_is_named_replaces_it() {
        let settled = |machine: MachineKind, named: Option<&[&str]>| {
            let mut spec = Spec::new("web".parse().unwrap());
            spec.machine = machine;
            spec.egress = named.map(|rules| rules.iter().map(|rule| (*rule).to_owned()).collect());
            spec.settle_egress(&["a.org".to_owned()]).unwrap();
            spec.check().map(|()| spec.egress.unwrap_or_default())
        };
        assert_eq!(settled(MachineKind::Process, None).unwrap(), ["a.org"]);
        assert_eq!(settled(MachineKind::Qemu, Some(&["b.org"])).unwrap(), ["b.org"]);
        for nothing in [&[][..], &["none"]] {
            assert_eq!(settled(MachineKind::Process, Some(nothing)).unwrap(), [""; 0]);
            assert_eq!(settled(MachineKind::External, Some(nothing)).unwrap(), [""; 0]);
        }
        assert_eq!(settled(MachineKind::External, None).unwrap(), [""; 0]);
        settled(MachineKind::External, Some(&["b.org"])).unwrap_err();
    }

    #[test]
    fn the_writable_layer_leaves_some_of_the_memory_to_programs() {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.memory_mib = Some(512);
        assert_eq!(spec.scratch_bytes(), 384 << 20);
        spec.memory_mib = Some(4096);
        assert_eq!(spec.scratch_bytes(), SCRATCH_BYTES_DEFAULT);
        spec.scratch_bytes = Some(4 << 30);
        let refused = spec.check().unwrap_err().to_string();
        assert!(refused.contains("scratch_bytes"), "{refused}");
        spec.scratch_bytes = Some(3 << 30);
        spec.check().unwrap();
    }

    #[test]
    fn the_writable_layer_of_a_virtual_machine_has_a_bound_of_its_own() {
        for kind in MachineKind::ALL.into_iter().filter(|kind| kind.is_virtual()) {
            let mut spec = Spec::new("web".parse().unwrap());
            (spec.machine, spec.memory_mib) = (kind, Some(MEMORY_MIB_MAX));
            assert_eq!(spec.scratch_bytes(), VIRTUAL_SCRATCH_BYTES_MAX, "{kind}");
            spec.memory_mib = Some(256);
            assert_eq!(spec.scratch_bytes(), 128 << 20, "{kind}");
            spec.scratch_bytes = Some(VIRTUAL_SCRATCH_BYTES_MAX);
            spec.check().unwrap();
            spec.scratch_bytes = Some(VIRTUAL_SCRATCH_BYTES_MAX + 1);
            let refused = spec.check();
            assert!(
                matches!(refused, Err(SandboxError::OutOfRange { what: "scratch_bytes", .. })),
                "{kind}: {refused:?}"
            );
        }
    }

    #[test]
    fn numbers_beyond_reason_are_refused_with_what_would_do() {
        let refused = |change: fn(&mut Spec)| {
            let mut spec = Spec::new("web".parse().unwrap());
            change(&mut spec);
            spec.check().unwrap_err().to_string()
        };
        for (message, word) in [
            (refused(|spec| spec.memory_mib = Some(1)), "memory_mib"),
            (refused(|spec| spec.memory_mib = Some(u64::MAX)), "16777216"),
            (refused(|spec| spec.cpu_millis = Some(u32::MAX)), "cpu_millis"),
            (refused(|spec| spec.ttl_ms = Some(0)), "ttl_ms"),
            (refused(|spec| spec.idle_ttl_ms = Some(u64::MAX)), "idle_ttl_ms"),
            (refused(|spec| spec.workdir = Some("work".to_owned())), "absolute"),
            (refused(|spec| drop(spec.labels.insert("-".to_owned(), String::new()))), "key"),
        ] {
            assert!(message.contains(word), "{message:?} does not say {word:?}");
        }
    }
}
