//! What a virtual machine was built from, so that a snapshot is only restored on an identical
//! machine.
//!
//! The bridge writes a note of it beside the machine when it starts. A snapshot contains the note and the
//! digests of the files, and a restore compares them with this host.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::{Plan, Programs};
use crate::kind::Hypervisor;
use crate::limits::RECORD_BYTES_MAX;
use crate::{MachineError, MachineKind};
use host::hex;

/// The note of a machine's own directory, and the description of a snapshot.
pub const MADE: &str = "made.json";
pub const MANIFEST: &str = "manifest.json";
/// The file of a snapshot with the machine's memory. With QEMU it holds the state of the devices, too; the
/// other monitors write that beside it, and Cloud Hypervisor a description of the machine. The disk of its
/// writable layer is called as in the machine's own directory.
pub const MEMORY: &str = "memory";
pub const STATE: &str = "state";
pub const CONFIG: &str = "config";

/// Increases when older snapshots can no longer be read.
const FORMAT: u32 = 1;

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInputs {
    pub kind: MachineKind,
    pub memory_bytes: u64,
    pub cpus: u32,
    /// The words of its command line that do not belong to this one machine alone.
    pub words: Vec<String>,
    /// The files that it reads, by their roles.
    pub files: BTreeMap<String, Looked>,
    /// The disk of its writable layer.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
}

/// A file as it was when the machine was started. If it has changed since, its digest says nothing about
/// the machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Looked {
    pub path: PathBuf,
    pub inode: u64,
    pub bytes: u64,
    pub modified_ns: i64,
}

/// The description in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub kind: MachineKind,
    pub monitor: String,
    pub memory_bytes: u64,
    pub cpus: u32,
    pub words: Vec<String>,
    pub digests: BTreeMap<String, String>,
    pub has_scratch: bool,
    /// The processor, where the guest has the host's own. Absent in a machine that has an emulated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The agent that it is a copy of.
    pub agent: String,
    pub taken_at_ms: u64,
}

impl Looked {
    fn at(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            inode: found.ino(),
            bytes: found.len(),
            modified_ns: found.mtime().wrapping_mul(1_000_000_000) + found.mtime_nsec(),
        })
    }

    /// The digest of its content, computed once as long as the file does not change.
    fn digest(&self) -> io::Result<String> {
        static KNOWN: Mutex<Option<HashMap<Looked, String>>> = Mutex::new(None);
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known().as_ref().and_then(|known| known.get(self)) {
            return Ok(digest.clone());
        }
        let digest = digest_of(&self.path)?;
        let mut known = known();
        let known = known.get_or_insert_default();
        // There are few kits, and they rarely change, so the oldest digests are not needed.
        if known.len() >= DIGESTS_MAX {
            known.clear();
        }
        known.insert(self.clone(), digest.clone());
        Ok(digest)
    }
}

/// How many digests are cached: those of several kits, each with a kernel, an initramfs and a few images.
const DIGESTS_MAX: usize = 64;

/// The word that gives a guest the host's own processor, after `-accel`.
const KVM: &str = "kvm";

/// The host's processor: a guest that has seen one cannot continue on another.
fn processor() -> io::Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let flags = ring::digest::digest(&SHA256, value("flags").as_bytes());
    Ok(format!("{} ({})", value("model name"), &hex::digits(flags.as_ref())[..16]))
}

fn digest_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => context.update(&buffer[..count]),
        }
    }
    Ok(hex::digits(context.finish().as_ref()))
}

impl MachineInputs {
    /// Describes the machine of this plan and these programs.
    pub fn of(kind: MachineKind, plan: &Plan, programs: &Programs) -> Result<Self, MachineError> {
        let mut files = BTreeMap::new();
        let mut look = |name: &str, path: &Path| {
            let looked = Looked::at(path).map_err(looked_at)?;
            files.insert(name.to_owned(), looked);
            Ok::<_, MachineError>(())
        };
        look("kernel", &plan.kit.kernel()?)?;
        look("initramfs", &plan.kit.initramfs()?)?;
        let mut scratch = None;
        for disk in &plan.disks {
            if disk.read_only {
                look("image", &disk.path)?;
            } else {
                scratch = Some(disk.path.clone());
            }
        }
        let own = [
            // It may be in that directory.
            (
                scratch.as_ref().map_or_else(String::new, |path| path.display().to_string()),
                "{scratch}",
            ),
            (plan.directory.display().to_string(), "{directory}"),
            (plan.id.to_string(), "{id}"),
            (plan.kit.directory().display().to_string(), "{kit}"),
            // One that is not in the kit, but in the store of a bridge.
            (image_of(&files).display().to_string(), IMAGE),
        ];
        let words = programs.machine.iter().map(|word| {
            let word = word.to_string_lossy().into_owned();
            own.iter()
                .filter(|(own, _)| !own.is_empty())
                .fold(word, |word, (own, name)| word.replace(own, name))
        });
        let (memory_bytes, cpus) = (plan.memory_bytes, plan.cpus);
        Ok(Self { kind, memory_bytes, cpus, words: words.collect(), files, scratch })
    }

    /// Writes the note beside the machine.
    pub fn note(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(MADE), serde_json::to_vec(self)?)
    }

    pub fn noted(directory: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&read_bounded(&directory.join(MADE))?)?)
    }

    /// The description of a snapshot of it.
    pub fn manifest(
        &self,
        monitor: String,
        agent: String,
        taken_at_ms: u64,
    ) -> Result<Manifest, MachineError> {
        for (name, looked) in &self.files {
            let now = Looked::at(&looked.path).ok();
            if now.as_ref() != Some(looked) {
                return Err(MachineError::OtherMachine {
                    what: name.clone(),
                    snapshot: "that of its start".to_owned(),
                    here: format!("another, {}", looked.path.display()),
                });
            }
        }
        Ok(Manifest {
            format: FORMAT,
            kind: self.kind,
            monitor,
            memory_bytes: self.memory_bytes,
            cpus: self.cpus,
            words: self.words.clone(),
            digests: self.digests()?,
            has_scratch: self.scratch.is_some(),
            processor: self.processor()?,
            agent,
            taken_at_ms,
        })
    }

    fn processor(&self) -> Result<Option<String>, MachineError> {
        let needs_kvm = self.kind.profile().hypervisor == Hypervisor::Required;
        let has_hosts = needs_kvm || self.words.iter().any(|word| word == KVM);
        has_hosts.then(processor).transpose().map_err(looked_at)
    }

    fn digests(&self) -> Result<BTreeMap<String, String>, MachineError> {
        let all = self.files.iter().map(|(name, looked)| Ok((name.clone(), looked.digest()?)));
        all.collect::<io::Result<_>>().map_err(looked_at)
    }
}

impl Manifest {
    pub fn read(directory: &Path) -> Result<Self, MachineError> {
        let broken =
            |reason: String| MachineError::BrokenSnapshot { path: directory.to_owned(), reason };
        let bytes =
            read_bounded(&directory.join(MANIFEST)).map_err(|error| broken(error.to_string()))?;
        let manifest: Self =
            serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(broken(format!(
                "its format is {}, and this bridge reads {FORMAT}",
                manifest.format
            )));
        }
        Ok(manifest)
    }

    /// Refuses a snapshot that would not be the same machine here.
    pub fn check(&self, here: &MachineInputs, monitor: &str) -> Result<(), MachineError> {
        let other = |what: &str, snapshot: &dyn ToString, here: &dyn ToString| {
            let (snapshot, here) = (snapshot.to_string(), here.to_string());
            Err(MachineError::OtherMachine { what: what.to_owned(), snapshot, here })
        };
        if self.kind != here.kind {
            return other("kind of machine", &self.kind, &here.kind);
        }
        if self.monitor != monitor {
            return other("monitor", &self.monitor, &monitor);
        }
        if self.memory_bytes != here.memory_bytes {
            return other("memory", &self.memory_bytes, &here.memory_bytes);
        }
        if self.cpus != here.cpus {
            return other("number of processors", &self.cpus, &here.cpus);
        }
        if self.has_scratch != here.scratch.is_some() {
            return other("disk of its own", &self.has_scratch, &here.scratch.is_some());
        }
        let digests = here.digests()?;
        for (name, digest) in &self.digests {
            let own = digests.get(name).map_or("none", String::as_str);
            if own != digest {
                return other(name, digest, &own);
            }
        }
        if let (Some(snapshots), Some(own)) = (&self.processor, here.processor()?)
            && *snapshots != own
        {
            return other("processor", snapshots, &own);
        }
        // Older snapshots name the path of the image.
        let image = image_of(&here.files).display().to_string();
        let words = self.words.iter().map(|word| match image.as_str() {
            "" => word.clone(),
            image => word.replace(image, IMAGE),
        });
        if let Some((word, own)) = words.zip(&here.words).find(|(word, own)| word != *own) {
            return other("command line", &word, own);
        }
        if self.words.len() != here.words.len() {
            return other("command line", &self.words.join(" "), &here.words.join(" "));
        }
        Ok(())
    }
}

/// Stands for the path of the image.
const IMAGE: &str = "{image}";

fn image_of(files: &BTreeMap<String, Looked>) -> &Path {
    files.get("image").map_or(Path::new(""), |looked| &looked.path)
}

fn looked_at(source: io::Error) -> MachineError {
    MachineError::Host { action: "look at what the machine is made of", source }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(directory: &Path) -> MachineInputs {
        fs::create_dir_all(directory).unwrap();
        let path = directory.join("kernel");
        fs::write(&path, b"one").unwrap();
        let files = [("kernel".to_owned(), Looked::at(&path).unwrap())].into();
        let words = vec!["qemu".to_owned(), "-S".to_owned()];
        MachineInputs {
            kind: MachineKind::Qemu,
            memory_bytes: 1,
            cpus: 1,
            words,
            files,
            scratch: None,
        }
    }

    #[test]
    fn only_the_same_machine_is_restored_and_what_differs_is_named() {
        let directory = std::env::temp_dir().join(format!("burrow-made-{}", std::process::id()));
        let made = made(&directory);
        let manifest = made.manifest("7.2".to_owned(), "a".to_owned(), 1).unwrap();
        manifest.check(&made, "7.2").unwrap();
        let named = |made: &MachineInputs, monitor: &str| {
            manifest.check(made, monitor).unwrap_err().to_string()
        };
        assert!(named(&made, "8.0").contains("monitor"));
        assert!(
            named(&MachineInputs { memory_bytes: 2, ..made.clone() }, "7.2").contains("memory")
        );
        let words = vec!["qemu".to_owned(), "-s".to_owned()];
        assert!(named(&MachineInputs { words, ..made.clone() }, "7.2").contains("command line"));
        let (ours, words) = (processor().unwrap(), vec![KVM.to_owned()]);
        let on_kvm = MachineInputs { words, ..made.clone() };
        let here = on_kvm.manifest("7.2".to_owned(), "a".to_owned(), 1).unwrap();
        assert_eq!(here.processor, Some(ours.clone()));
        here.check(&on_kvm, "7.2").unwrap();
        let there = Manifest { processor: Some("another".to_owned()), ..here };
        let refused = there.check(&on_kvm, "7.2").unwrap_err().to_string();
        assert!(refused.contains("processor is another") && refused.contains(&ours), "{refused}");
        let path = directory.join("kernel");
        fs::write(&path, b"two!").unwrap();
        let files = [("kernel".to_owned(), Looked::at(&path).unwrap())].into();
        assert!(named(&MachineInputs { files, ..made.clone() }, "7.2").contains("kernel"));
        let late = made.manifest("7.2".to_owned(), "a".to_owned(), 1).unwrap_err().to_string();
        assert!(late.contains("kernel"), "{late}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_image_may_be_elsewhere_on_another_host() {
        let directory = std::env::temp_dir().join(format!("burrow-image-{}", std::process::id()));
        let made = made(&directory);
        let at = |name: &str| {
            let path = directory.join(name);
            fs::write(&path, b"the same").unwrap();
            let mut files = made.files.clone();
            files.insert("image".to_owned(), Looked::at(&path).unwrap());
            let words = vec![format!("file={IMAGE},readonly=on")];
            (MachineInputs { words, files, ..made.clone() }, path)
        };
        let ((there, _), (here, path)) = (at("a"), at("b"));
        let manifest = there.manifest("7.2".to_owned(), "a".to_owned(), 1).unwrap();
        manifest.check(&here, "7.2").unwrap();
        // Snapshots were written with the path before, and are restored where they were made.
        let words = vec![format!("file={},readonly=on", path.display())];
        Manifest { words, ..manifest }.check(&here, "7.2").unwrap();
        fs::remove_dir_all(directory).unwrap();
    }
}
