//! Resolves the name of an image. All entrances and the pool use this, so that what is kept ready
//! is what is requested. Pure, except for checking whether a root is a directory.

use std::collections::BTreeMap;
use std::path::Path;

use machine::MachineKind;

/// The tag that means none.
const LATEST: &str = ":latest";

/// The names of the kit's images in published clients.
const KNOWN_AS: [(&str, &str); 4] = [
    ("microsandbox/python", "python"),
    ("python:3.11-slim", "python"),
    ("microsandbox/node", "node"),
    ("node:20-slim", "node"),
];

/// The root that a name means on such a machine: the `configured` one, or for a virtual machine an image of
/// the kit. `None` for an unknown name.
pub fn root_of<R: AsRef<Path>>(
    configured: &BTreeMap<String, R>,
    machine: MachineKind,
    image: &str,
) -> Option<String> {
    let untagged = image.strip_suffix(LATEST).unwrap_or(image);
    let root = configured.get(image).or_else(|| configured.get(untagged)).map(AsRef::as_ref);
    // A directory is no root for a machine that boots from a disk.
    // What is no path is the name of an image that the store makes a disk of.
    let fits = |root: &&Path| !machine.is_virtual() || !root.is_absolute() || !root.is_dir();
    let root = root.filter(fits).map(|root| root.to_string_lossy().into_owned());
    root.or_else(|| in_kit(untagged).filter(|_| machine.is_virtual()).map(str::to_owned))
}

/// The image of the kit that this name means; the machine reports one that is missing.
fn in_kit(image: &str) -> Option<&str> {
    let known = KNOWN_AS.into_iter().find(|(name, _)| *name == image);
    let is_plain = !image.contains(['/', ':']);
    known.map(|(_, kit)| kit).or(is_plain.then_some(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(machine: MachineKind, image: &str) -> Option<String> {
        let configured = [("python", "/"), ("microsandbox/node", "/"), ("own", "/not/there.erofs")];
        let configured = configured.map(|(name, root)| (name.to_owned(), root));
        root_of(&BTreeMap::from(configured), machine, image)
    }

    #[test]
    fn a_process_machine_has_what_is_configured_and_no_more() {
        let root = |image| root(MachineKind::Process, image);
        assert_eq!(root("python").as_deref(), Some("/"));
        assert_eq!(root("python:latest").as_deref(), Some("/"));
        assert_eq!(root("node"), None);
        assert_eq!(root("/usr"), None);
    }

    #[test]
    fn a_directory_is_no_root_for_a_virtual_machine() {
        let root = |image| root(MachineKind::Qemu, image);
        for (given, meant) in [
            ("python", "python"),
            ("python:latest", "python"),
            ("python:3.11-slim", "python"),
            ("microsandbox/node", "node"),
            ("full", "full"),
            ("own", "/not/there.erofs"),
        ] {
            assert_eq!(root(given).as_deref(), Some(meant), "{given}");
        }
        assert_eq!(root("debian:12"), None);
        assert_eq!(root("/srv/x.erofs"), None);
    }

    #[test]
    fn a_configured_name_may_stand_for_an_image_of_the_store_on_every_machine() {
        let stored = BTreeMap::from([("microsandbox/python".to_owned(), "python:3.12-slim")]);
        for machine in [MachineKind::Process, MachineKind::Qemu] {
            let root = root_of(&stored, machine, "microsandbox/python");
            assert_eq!(root.as_deref(), Some("python:3.12-slim"), "{machine}");
        }
    }
}
