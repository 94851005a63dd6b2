//! Firecracker's jail: a directory with everything that a machine needs, which becomes its
//! monitor's root, and an unprivileged user.
//!
//! The jail is in the machine's own directory and goes with it. Files come into it as second names
//! of the same files, so the directory must be on the file system of the images and of the state
//! (`BURROW_RUNTIME_DIR`); the machine's sockets are in it, with links to them where everybody else
//! looks. Only root can make one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use crate::MachineError;
use crate::vmm::{JAIL, PORT, Plan, find_program};

const PROGRAM: &str = "jailer";

/// The names of things inside.
pub const KERNEL: &str = "kernel";
pub const INITRAMFS: &str = "initramfs";
pub const VSOCK: &str = "vsock";
const API: &str = "api";

/// The name of a disk, in the jail and for the monitor.
pub fn disk(number: usize) -> String {
    format!("disk{number}")
}

/// The user that the monitor runs as. Use a dedicated one: machines that share a user can signal
/// each other's monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jailer {
    pub uid: u32,
    pub gid: u32,
}

impl Jailer {
    /// Furnishes the jail; returns the words that start the program in it.
    pub fn enter(self, program: &Path, plan: &Plan) -> Result<Vec<OsString>, MachineError> {
        let jailer = find_program(PROGRAM).ok_or(MachineError::Program {
            name: PROGRAM,
            remedy: "it comes with each release of Firecracker; put it on the PATH, of the same \
                     release",
        })?;
        // The jail is named after the file itself, and so not after a link to it.
        let host = |action| move |source| MachineError::Host { action, source };
        let program = program.canonicalize().map_err(host("look at the program"))?;
        let root = root(&program, plan);
        fs::create_dir_all(&root).map_err(host("make the jail"))?;
        self.furnish(&root, plan).map_err(host(
            "put the images into the jail, which must be on their file system (BURROW_RUNTIME_DIR)",
        ))?;
        for (link, name) in [(plan.monitor(), API), (plan.vsock(), VSOCK)] {
            symlink(root.join(name), link).map_err(host("link to the jail"))?;
        }
        let words = [
            jailer.into_os_string(),
            "--id".into(),
            plan.id.as_str().into(),
            "--exec-file".into(),
            program.into_os_string(),
            "--uid".into(),
            self.uid.to_string().into(),
            "--gid".into(),
            self.gid.to_string().into(),
            "--chroot-base-dir".into(),
            plan.directory.join(JAIL).into_os_string(),
            "--".into(),
            "--api-sock".into(),
            format!("/{API}").into(),
            "--level".into(),
            super::LOG_LEVEL.into(),
        ];
        Ok(words.into())
    }

    fn furnish(self, root: &Path, plan: &Plan) -> io::Result<()> {
        let kit = |error: crate::vmm::KitError| io::Error::other(error);
        link_file(&plan.kit.unpacked_kernel().map_err(kit)?, &root.join(KERNEL))?;
        link_file(&plan.kit.initramfs().map_err(kit)?, &root.join(INITRAMFS))?;
        for (number, found) in plan.disks.iter().enumerate() {
            let inside = root.join(disk(number));
            link_file(&found.path, &inside)?;
            if !found.read_only {
                chown(&inside, Some(self.uid), Some(self.gid))?;
            }
        }
        Ok(())
    }

    /// Makes the socket that the guest calls, which is bound by now, visible inside the jail.
    pub fn open_door(self, plan: &Plan) -> Result<(), MachineError> {
        let opened = find_root(plan).and_then(|root| {
            let inside = root.join(format!("{VSOCK}_{PORT}"));
            fs::hard_link(plan.calls(), &inside)?;
            chown(inside, Some(self.uid), Some(self.gid))
        });
        opened.map_err(|source| MachineError::Host { action: "open the jail's door", source })
    }
}

/// Gives a file a second name. Of a symbolic link it is the target that gets one: the link would lead nowhere
/// inside.
fn link_file(path: &Path, name: &Path) -> io::Result<()> {
    fs::hard_link(path.canonicalize()?, name)
}

/// Where the jailer puts the root directory of a program.
fn root(program: &Path, plan: &Plan) -> PathBuf {
    let name = program.file_name().unwrap_or_default();
    plan.directory.join(JAIL).join(name).join(plan.id.as_str()).join("root")
}

fn find_root(plan: &Plan) -> io::Result<PathBuf> {
    // The link to the monitor's socket, which is in the root, says where that is.
    let link = fs::read_link(plan.monitor())?;
    link.parent().map(Path::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::firecracker::tests::plan;

    #[test]
    fn a_symbolic_link_is_resolved_before_it_comes_into_the_jail() {
        let (directory, mut plan) = plan("jail-links");
        let (image, linked) = (directory.join("kit/base.erofs"), directory.join("linked.erofs"));
        symlink("kit/base.erofs", &linked).unwrap();
        plan.disks[0].path = linked;
        let kernel = directory.join("kit/vmlinux");
        fs::rename(&kernel, directory.join("vmlinux-6.1")).unwrap();
        symlink("../vmlinux-6.1", &kernel).unwrap();
        let root = root(Path::new("/opt/firecracker"), &plan);
        fs::create_dir_all(&root).unwrap();
        let ours =
            Jailer { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
        ours.furnish(&root, &plan).unwrap();
        for (inside, outside) in [("disk0", image), (KERNEL, directory.join("vmlinux-6.1"))] {
            let found = fs::symlink_metadata(root.join(inside)).unwrap();
            assert!(found.is_file(), "{inside} would dangle");
            assert_eq!(found.ino(), fs::metadata(outside).unwrap().ino(), "{inside}");
        }
        plan.remove();
    }

    #[test]
    fn paths_inside_lead_to_the_files_outside() {
        let (directory, plan) = plan("jail");
        let root = root(Path::new("/opt/bin/firecracker-1.16"), &plan);
        assert!(root.ends_with("jail/firecracker-1.16/0123456789ab/root"), "{}", root.display());
        fs::create_dir_all(&root).unwrap();
        let ours =
            Jailer { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
        ours.furnish(&root, &plan).unwrap();
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        let kit = plan.kit.directory();
        for (inside, outside) in [
            (KERNEL, kit.join("vmlinux")),
            (INITRAMFS, kit.join("initramfs.cpio")),
            ("disk0", kit.join("base.erofs")),
            ("disk1", directory.join("scratch.img")),
        ] {
            assert_eq!(inode(root.join(inside)), inode(outside), "{inside}");
        }
        symlink(root.join(API), plan.monitor()).unwrap();
        let listener = UnixListener::bind(plan.calls()).unwrap();
        ours.open_door(&plan).unwrap();
        // A connection to the inner name reaches the listener at the outer one.
        std::os::unix::net::UnixStream::connect(root.join("vsock_1024")).unwrap();
        listener.accept().unwrap();
        plan.remove();
        assert!(!root.exists());
    }
}
