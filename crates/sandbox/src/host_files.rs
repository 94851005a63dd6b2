//! What a bridge shows of the host's own files: the root directory of a process sandbox without an
//! image, whether it may be the host's own root, and what is hidden there. The operator decides;
//! the registry and one-shots ask here. It starts nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{SandboxError, Spec};
use crate::limits::SCRATCH_BYTES_DEFAULT;
use host::paths::Paths;
use host::places;
use machine::limits::{SCRATCH_BYTES_MIN, SCRATCH_DISK_BYTES_MAX, SCRATCH_DISK_BYTES_MIN};
use machine::process::{hide, scratch};
use machine::{Confinement, NoDisk, ScratchPolicy};

/// The host's own root.
pub const HOST_ROOT: &str = "/";

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFiles {
    /// The root of process sandboxes that name no image. Without one they are refused, and so are
    /// those that ask for the host's own root by its path.
    pub root: Option<PathBuf>,
    /// Files and directories of the operator that no sandbox may read.
    pub private: Vec<PathBuf>,
    /// How else process sandboxes are kept apart from the host.
    pub confinement: Confinement,
    /// Where the writable layers of process sandboxes are.
    pub scratch: ScratchPolicy,
}

impl Default for HostFiles {
    /// The settings of a person's own bridge on their own machine.
    fn default() -> Self {
        Self {
            root: Some(HOST_ROOT.into()),
            private: Vec::new(),
            confinement: Confinement::default(),
            scratch: ScratchPolicy::default(),
        }
    }
}

impl HostFiles {
    /// Gives a sandbox without an image its root, and refuses the host's own root unless the
    /// operator allows it.
    pub fn settle(&self, spec: &mut Spec) -> Result<(), SandboxError> {
        if !spec.machine().sees_host() {
            return Ok(());
        }
        if spec.image.is_none() {
            let root = self.root.as_ref().ok_or(SandboxError::NoRoot)?;
            spec.image = Some(root.to_string_lossy().into_owned());
        }
        let requested = spec.image.as_deref().map(Path::new).filter(|image| image.is_absolute());
        if requested.is_some_and(is_host_root) && !self.root.as_deref().is_some_and(is_host_root) {
            return Err(SandboxError::HostRoot);
        }
        Ok(())
    }

    /// Decides where the writable layer of a process sandbox is, and how large it is on disk.
    pub(super) async fn settle_scratch(
        &self,
        spec: &mut Spec,
        paths: &Paths,
    ) -> Result<(), SandboxError> {
        let requested = spec.scratch_bytes;
        self.place_scratch(spec, paths)?;
        if !spec.is_on_disk {
            return Ok(());
        }
        let (state, bytes) = (paths.state.clone(), spec.scratch_bytes());
        if scratch::is_prepared(&state, bytes) {
            return Ok(());
        }
        let prepared = tokio::task::spawn_blocking(move || scratch::prepare(&state, bytes)).await;
        match prepared {
            Ok(Ok(())) => Ok(()),
            // From here on that is known.
            Ok(Err(why)) => {
                spec.scratch_bytes = requested;
                self.leave_in_memory(spec, why)
            }
            Err(_) => Err(SandboxError::Stopping),
        }
    }

    /// The same, before anything is made for it.
    pub(super) fn place_scratch(&self, spec: &mut Spec, paths: &Paths) -> Result<(), SandboxError> {
        spec.is_on_disk = false;
        if spec.machine().sees_host()
            && let Some(value) = spec.scratch_bytes.filter(|bytes| *bytes > SCRATCH_DISK_BYTES_MAX)
        {
            let (min, max) = (SCRATCH_BYTES_MIN, SCRATCH_DISK_BYTES_MAX);
            return Err(SandboxError::OutOfRange { what: "scratch_bytes", value, min, max });
        }
        let wants_disk = match self.scratch {
            _ if !spec.machine().sees_host() => false,
            ScratchPolicy::Memory => return self.leave_in_memory(spec, NoDisk::NotWanted),
            ScratchPolicy::Auto => gains_from_disk(spec),
            ScratchPolicy::Disk => true,
        };
        if !wants_disk {
            return Ok(());
        }
        match scratch::size(&paths.state, spec.scratch_bytes) {
            Ok(bytes) => {
                (spec.is_on_disk, spec.scratch_bytes) = (true, Some(bytes));
                Ok(())
            }
            Err(why) => self.leave_in_memory(spec, why),
        }
    }

    /// Refuses one that was to be on disk, and one that is too large for the memory.
    fn leave_in_memory(&self, spec: &mut Spec, why: NoDisk) -> Result<(), SandboxError> {
        spec.is_on_disk = false;
        if self.scratch == ScratchPolicy::Disk {
            return Err(SandboxError::NoDisk(why));
        }
        let max = spec.scratch_bytes_max();
        match (spec.scratch_bytes, spec.memory_mib) {
            (Some(requested), Some(mib)) if requested > max => {
                let memory = mib.saturating_mul(1024 * 1024);
                let no_disk = why.to_string();
                Err(SandboxError::ScratchBeyondMemory { requested, max, memory, no_disk })
            }
            _ => Ok(()),
        }
    }

    /// The settings for the operator, who may use the host's root.
    #[must_use]
    pub fn for_operator(&self) -> Self {
        let root = self.root.clone().or_else(|| Some(HOST_ROOT.into()));
        Self { root, ..self.clone() }
    }

    /// What must be hidden in a sandbox over this directory of the host, whatever it has requested.
    pub(super) fn hidden_below(&self, root: &Path, homes: &[PathBuf]) -> Vec<String> {
        hide::all_seen_through(root, self.private.iter().chain(&places::of_bridges(homes)))
    }
}

/// Whether a writable layer is better on disk: in memory it takes what programs need. A small one stays in
/// memory, since the tables of a file system would fill it.
fn gains_from_disk(spec: &Spec) -> bool {
    match spec.scratch_bytes {
        Some(bytes) if bytes < SCRATCH_DISK_BYTES_MIN => false,
        requested => {
            spec.memory_mib.is_some() || requested.is_some_and(|it| it > SCRATCH_BYTES_DEFAULT)
        }
    }
}

/// Whether a path is the host's root under any name: `/..`, a symlink, another mount of it.
pub(super) fn is_host_root(path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let same = identity(path).is_some_and(|own| identity(Path::new(HOST_ROOT)) == Some(own));
    same || path.canonicalize().is_ok_and(|real| real == Path::new(HOST_ROOT))
}

#[cfg(test)]
mod tests {
    use machine::MachineKind;

    use super::*;

    fn settled(root: Option<&str>, machine: MachineKind, image: Option<&str>) -> Option<String> {
        let files = HostFiles {
            root: root.map(PathBuf::from),
            private: Vec::new(),
            confinement: Confinement::default(),
            scratch: ScratchPolicy::default(),
        };
        let mut spec = Spec::new("web".parse().unwrap());
        (spec.machine, spec.image) = (Some(machine), image.map(str::to_owned));
        files.settle(&mut spec).ok().map(|()| spec.image.unwrap_or_default())
    }

    #[test]
    fn the_hosts_root_is_given_only_where_the_operator_has_set_it() {
        let process = |root, image| settled(root, MachineKind::Process, image);
        assert_eq!(process(Some("/"), None).as_deref(), Some("/"));
        assert_eq!(process(Some("/usr"), None).as_deref(), Some("/usr"));
        assert_eq!(process(None, None), None);
        for path in ["/", "/..", "//", "/usr/..", "/proc/self/root", "/proc/self/root/."] {
            assert_eq!(process(None, Some(path)), None, "{path}");
            assert_eq!(process(Some("/usr"), Some(path)), None, "{path}");
            assert_eq!(process(Some("/"), Some(path)).as_deref(), Some(path));
        }
        for image in ["/usr", "debian:12", "python"] {
            assert_eq!(process(None, Some(image)).as_deref(), Some(image));
        }
    }

    #[test]
    fn machines_that_do_not_see_the_host_need_no_word() {
        for kind in MachineKind::ALL.into_iter().filter(|kind| !kind.sees_host()) {
            assert_eq!(settled(None, kind, None).as_deref(), Some(""), "{kind}");
        }
    }

    /// What becomes of a layer of these sizes, over a state directory that has no disk.
    fn placed(
        scratch: ScratchPolicy,
        memory_mib: Option<u64>,
        scratch_bytes: Option<u64>,
    ) -> Result<(bool, u64), String> {
        let files = HostFiles { scratch, ..HostFiles::default() };
        let paths = Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() };
        let mut spec = Spec::new("web".parse().unwrap());
        (spec.memory_mib, spec.scratch_bytes) = (memory_mib, scratch_bytes);
        files.place_scratch(&mut spec, &paths).map_err(|error| error.to_string())?;
        Ok((spec.is_on_disk, spec.scratch_bytes()))
    }

    #[test]
    fn without_a_disk_the_layer_is_in_memory_as_far_as_it_fits() {
        let auto = |memory, scratch| placed(ScratchPolicy::Auto, memory, scratch);
        assert_eq!(auto(None, None), Ok((false, SCRATCH_BYTES_DEFAULT)));
        assert_eq!(auto(None, Some(8 << 30)), Ok((false, 8 << 30)));
        let refused = auto(None, Some(500 << 30)).unwrap_err();
        let message = "scratch_bytes (--scratch) must be from 1.0 MiB to 64.0 GiB, not 500.0 GiB";
        assert_eq!(refused, message);
        assert_eq!(auto(Some(512), None), Ok((false, 384 << 20)));
        let refused = auto(Some(512), Some(3 << 30)).unwrap_err();
        let message = "scratch_bytes (--scratch) must be at most 384.0 MiB, not 3.0 GiB: the writable layer \
                    is in memory, and may take three quarters of the 512.0 MiB that memory_mib (--memory) \
                    allows; it cannot be on disk: ";
        assert!(refused.starts_with(message) && refused.len() > message.len(), "{refused}");
    }

    #[test]
    fn the_operators_word_counts_where_the_disk_does_not() {
        let refused = placed(ScratchPolicy::Memory, Some(512), Some(3 << 30)).unwrap_err();
        assert!(refused.ends_with("the configuration says `scratch = \"memory\"` in [process]"));
        let refused = placed(ScratchPolicy::Disk, None, None).unwrap_err();
        assert!(
            refused.starts_with("the configuration wants writable layers on disk"),
            "{refused}"
        );
    }

    #[test]
    fn a_layer_goes_to_disk_where_memory_would_not_hold_it() {
        let gains = |memory_mib, scratch_bytes| {
            let mut spec = Spec::new("web".parse().unwrap());
            (spec.memory_mib, spec.scratch_bytes) = (memory_mib, scratch_bytes);
            gains_from_disk(&spec)
        };
        assert!(!gains(None, None));
        assert!(!gains(None, Some(SCRATCH_BYTES_DEFAULT)));
        assert!(gains(None, Some(SCRATCH_BYTES_DEFAULT + 1)));
        assert!(gains(Some(512), None));
        assert!(gains(Some(512), Some(SCRATCH_DISK_BYTES_MIN)));
        assert!(!gains(Some(512), Some(SCRATCH_DISK_BYTES_MIN - 1)));
    }
}
