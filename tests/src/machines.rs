//! What tests of virtual machines need: whether they can run here, and their processes.

use std::path::PathBuf;

use nix::unistd::Pid;

use crate::{children, have, skip, workspace};

/// The directory of the kernel and the images, as `just images` leaves it.
pub fn kit() -> PathBuf {
    std::env::var_os("BURROW_IMAGES")
        .map_or_else(|| workspace().join("target/images"), PathBuf::from)
}

/// Whether virtual machines can be started; if not, the test prints a skip.
pub fn machines_or_skip() -> bool {
    let missing = missing();
    if let Some(missing) = &missing {
        skip(missing);
    }
    missing.is_none()
}

fn missing() -> Option<String> {
    let program = "qemu-system-x86_64";
    if !have(program) {
        return Some(format!("there is no {program} here"));
    }
    let relay = "vhost-device-vsock";
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    if !have(relay) && !home.join(".cargo/bin").join(relay).exists() {
        return Some(format!("there is no {relay} here"));
    }
    let initramfs = kit().join("initramfs.cpio");
    (!initramfs.exists()).then(|| format!("there is no {}: run `just images`", initramfs.display()))
}

/// The process of this name below a machine's supervisor.
///
/// # Panics
/// When there is none.
pub fn process_of(supervisor: u32, name: &str) -> Pid {
    let below = children(Pid::from_raw(supervisor as i32));
    let is_it = |pid: &Pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|command| name.starts_with(command.trim_end()))
    };
    below.into_iter().find(is_it).unwrap_or_else(|| panic!("no {name} below {supervisor}"))
}
