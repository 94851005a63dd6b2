//! The drivers that the initramfs brings.

use std::fs::{self, File};
use std::path::Path;

use super::super::{BootError, Outcome, Stage};
use crate::sys::module;

/// The directory that the initramfs keeps them in, and the list that says in which order they are
/// loaded.
pub(super) const DIRECTORY: &str = "/modules";
const ORDER: &str = "/modules/order";

/// The devices of the bus that every machine has its disks and links on.
const DEVICES: &str = "/sys/bus/virtio/devices";

/// Whether the machine has a virtio device of this number.
fn is_there(number: &str) -> bool {
    let Ok(devices) = fs::read_dir(DEVICES) else { return false };
    devices.flatten().any(|device| {
        let found = fs::read_to_string(device.path().join("device")).unwrap_or_default();
        found.trim().trim_start_matches("0x").trim_start_matches('0') == number
    })
}

/// Loads those whose device exists, or that are listed without one. The step that needs the driver
/// reports a failure better.
#[expect(clippy::unnecessary_wraps, reason = "all steps have one signature")]
pub(super) fn load_all(_: &mut Stage) -> Result<Outcome, BootError> {
    let Ok(order) = fs::read_to_string(ORDER) else {
        return Ok(Outcome::Skipped("there is no list of modules"));
    };
    let mut failed = String::new();
    for line in order.lines() {
        let (name, device) = line.split_once(' ').unwrap_or((line, ""));
        if !device.is_empty() && !is_there(device) {
            continue;
        }
        let path = Path::new(DIRECTORY).join(name);
        if let Err(error) = File::open(&path).and_then(|file| module::load(&file)) {
            for part in [name, ": ", &error.to_string(), "; "] {
                failed.push_str(part);
            }
        }
    }
    Ok(if failed.is_empty() { Outcome::Done } else { Outcome::Failed(failed) })
}
