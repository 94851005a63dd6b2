//! The properties of a machine that cannot be changed once it runs, and so must match the request. Pure,
//! except for the look at the image's file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Spec;
use machine::vmm::Kit;
use machine::vmm::kit::IMAGE_DEFAULT;
use machine::{MachineKind, MachineSpec};

/// Machines of the same shape differ only in what [`super::Personal`] can change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub machine: MachineKind,
    /// The directory that is the root of a process machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Of a virtual machine, by its name in the kit, or by its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The file that this was when the shape was taken; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<ImageFile>,
    pub scratch_bytes: u64,
    /// Whether the writable layer of a process machine is on disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_on_disk: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    pub hide: Vec<String>,
    /// The revision of the template whose commands have made it ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// Detects that an image's file was replaced or written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageFile {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl ImageFile {
    fn of(image: &str) -> Option<Self> {
        let path = if image.contains('/') {
            PathBuf::from(image)
        } else {
            Kit::find().ok()?.image(image).ok()?
        };
        Self::at(&path)
    }

    fn at(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified_s: found.mtime(),
            modified_ns: found.mtime_nsec(),
        })
    }
}

impl Shape {
    /// The same of a machine that the commands of a template have made ready.
    #[must_use]
    pub fn of_template(self, revision: Option<String>) -> Self {
        Self { template: revision, ..self }
    }

    /// The shape of a machine; `None` for a request that a pool never fulfils.
    pub fn of(spec: &Spec, machine: &MachineSpec) -> Option<Self> {
        let special = spec.address.is_some()
            || spec.workspace.is_some()
            || !(spec.volumes.is_empty() && spec.ports.is_empty());
        // Every field is named, so that a new one is thought about: does it belong to the shape,
        // or can it be changed after the start?
        let MachineSpec {
            id: _,
            hostname: _,
            root,
            image,
            scratch_bytes,
            scratch_disk,
            bounds,
            // The operator's, and the same for all.
            confinement: _,
            env: _,
            secrets: _,
            hide,
            directories: _,
            address: _,
            restore,
            bind,
        } = machine;
        if special || restore.is_some() || bind.is_some() {
            return None;
        }
        let is_virtual = spec.machine().is_virtual();
        let image = is_virtual.then(|| image.as_deref().unwrap_or(IMAGE_DEFAULT));
        Some(Self {
            machine: spec.machine(),
            root: (!is_virtual).then(|| root.clone()),
            image: image.map(str::to_owned),
            file: image.and_then(ImageFile::of),
            scratch_bytes: *scratch_bytes,
            is_on_disk: scratch_disk.is_some(),
            memory_bytes: bounds.memory_bytes,
            cpu_millis: bounds.cpu_millis,
            hide: hide.clone(),
            template: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostFiles;
    use host::paths::Paths;

    fn shape(change: impl FnOnce(&mut Spec)) -> Option<Shape> {
        let mut spec = Spec::new("web".parse().unwrap());
        change(&mut spec);
        let paths = Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() };
        let id = "0123456789ab".parse().unwrap();
        Shape::of(&spec, &spec.machine_spec(id, &paths, &HostFiles::default(), None))
    }

    #[test]
    fn changeable_options_keep_the_shape() {
        let plain = shape(|_| {}).unwrap();
        let same = shape(|spec| {
            spec.hostname = Some("other".to_owned());
            spec.env = vec![("A".to_owned(), "1".to_owned())];
            spec.secrets = vec!["token".to_owned()];
            spec.workdir = Some("/usr".to_owned());
            spec.labels.insert("team".to_owned(), "a".to_owned());
            // Egress is opened when the machine is claimed.
            spec.egress = Some(vec!["example.org".to_owned()]);
            (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms) = (Some(9), Some(9), Some(9));
        });
        assert_eq!(same, Some(plain));
    }

    #[test]
    fn unchangeable_options_change_the_shape() {
        let plain = shape(|_| {}).unwrap();
        let changes: [fn(&mut Spec); 6] = [
            |spec| spec.image = Some("/usr".to_owned()),
            |spec| spec.memory_mib = Some(512),
            |spec| spec.cpu_millis = Some(500),
            |spec| spec.scratch_bytes = Some(1 << 20),
            |spec| spec.hide = Some(vec!["/opt".to_owned()]),
            |spec| spec.machine = Some(MachineKind::External),
        ];
        for change in changes {
            assert_ne!(shape(change).unwrap(), plain);
        }
    }

    #[test]
    fn a_virtual_machine_without_an_image_has_the_usual_one_and_nothing_of_the_host() {
        for kind in MachineKind::ALL.into_iter().filter(|kind| kind.is_virtual()) {
            let plain = shape(|spec| spec.machine = Some(kind)).unwrap();
            let named = shape(|spec| {
                (spec.machine, spec.image) = (Some(kind), Some(IMAGE_DEFAULT.to_owned()));
            });
            assert_eq!(named.as_ref(), Some(&plain));
            assert_eq!((plain.root, plain.image.as_deref()), (None, Some(IMAGE_DEFAULT)));
            assert_eq!(plain.hide, [""; 0]);
            let changes: [fn(&mut Spec); 2] = [
                |spec| spec.image = Some("python".to_owned()),
                |spec| spec.hide = Some(vec!["/opt".to_owned()]),
            ];
            for change in changes {
                let other = shape(|spec| {
                    spec.machine = Some(kind);
                    change(spec);
                });
                assert_ne!(other, named);
            }
        }
    }

    #[test]
    fn an_image_that_is_built_again_makes_another_shape() {
        let path = std::env::temp_dir().join(format!("burrow-image-{}", std::process::id()));
        let shape = || {
            shape(|spec| {
                spec.machine = Some(MachineKind::Qemu);
                spec.image = Some(path.to_string_lossy().into_owned());
            })
        };
        let absent = shape();
        fs::write(&path, b"one").unwrap();
        let first = shape();
        assert_ne!(first, absent);
        assert_eq!(shape(), first);
        let text = serde_json::to_string(&first).unwrap();
        assert_eq!(serde_json::from_str::<Option<Shape>>(&text).unwrap(), first);
        fs::write(&path, b"another").unwrap();
        let second = shape();
        assert_ne!(second, first, "it was written over");
        let new = path.with_extension("new");
        fs::write(&new, b"another").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
        fs::rename(&new, &path).unwrap();
        assert_ne!(shape(), second, "another file took its place");
        fs::remove_file(path).unwrap();
    }
}
