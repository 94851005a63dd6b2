//! What of a machine cannot be changed once it runs, and so must be what is asked for. Pure.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::machine::{MachineKind, MachineSpec};
use crate::sandbox::Spec;

/// Machines of the same shape differ only in what [`super::Personal`] can change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub machine: MachineKind,
    pub root: PathBuf,
    /// Of a virtual machine, by the name that its kit has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub scratch_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    pub hide: Vec<String>,
}

impl Shape {
    /// The shape of a machine; `None` for one that asks for what a pool never has.
    pub fn of(spec: &Spec, machine: &MachineSpec) -> Option<Self> {
        let special = spec.address.is_some()
            || spec.workspace.is_some()
            || [&spec.egress, &spec.volumes, &spec.secrets, &spec.ports]
                .iter()
                .any(|asked| !asked.is_empty());
        // Every field is named, so that a new one is thought about: does it belong to the shape,
        // or can it be changed after the start?
        let MachineSpec {
            id: _,
            hostname: _,
            root,
            image,
            scratch_bytes,
            bounds,
            env: _,
            hide,
            directories: _,
            address: _,
            restore,
        } = machine;
        (!special && restore.is_none()).then(|| Self {
            machine: spec.machine,
            root: root.clone(),
            image: image.clone().filter(|_| spec.machine != MachineKind::Process),
            scratch_bytes: *scratch_bytes,
            memory_bytes: bounds.memory_bytes,
            cpu_millis: bounds.cpu_millis,
            hide: hide.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Paths;

    fn shape(change: impl FnOnce(&mut Spec)) -> Option<Shape> {
        let mut spec = Spec::new("web".parse().unwrap());
        change(&mut spec);
        let paths = Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() };
        let id = "0123456789ab".parse().unwrap();
        Shape::of(&spec, &spec.machine_spec(id, &paths, None))
    }

    #[test]
    fn what_can_be_changed_in_a_running_machine_makes_no_difference() {
        let plain = shape(|_| {}).unwrap();
        let same = shape(|spec| {
            spec.hostname = Some("other".to_owned());
            spec.env = vec![("A".to_owned(), "1".to_owned())];
            spec.workdir = Some("/usr".to_owned());
            spec.labels.insert("team".to_owned(), "a".to_owned());
            (spec.ttl_ms, spec.idle_ttl_ms, spec.keep_stopped_ms) = (Some(9), Some(9), Some(9));
        });
        assert_eq!(same, Some(plain));
    }

    #[test]
    fn what_cannot_be_changed_makes_another_shape() {
        let plain = shape(|_| {}).unwrap();
        let changes: [fn(&mut Spec); 6] = [
            |spec| spec.image = Some("/usr".to_owned()),
            |spec| spec.memory_mib = Some(512),
            |spec| spec.cpu_millis = Some(500),
            |spec| spec.scratch_bytes = Some(1 << 20),
            |spec| spec.hide = Some(vec!["/opt".to_owned()]),
            |spec| spec.machine = MachineKind::External,
        ];
        for change in changes {
            assert_ne!(shape(change).unwrap(), plain);
        }
        assert_eq!(shape(|spec| spec.egress = vec!["example.org".to_owned()]), None);
    }
}
