//! The disk of a machine's writable layer: a sparse file of the largest allowed size, with an empty file
//! system.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::find_program;
use crate::MachineError;
use crate::limits::SCRATCH_BYTES_MIN;
use host::paths::PRIVATE_FILE;

const PROGRAM: &str = "mkfs.ext4";

/// Makes it. An existing one has the files of an earlier start of the machine, and is kept.
pub fn make(path: &Path, bytes: u64) -> Result<(), MachineError> {
    if bytes < SCRATCH_BYTES_MIN {
        return Err(MachineError::Scratch { bytes, bytes_min: SCRATCH_BYTES_MIN });
    }
    let program = find_program(PROGRAM).ok_or(MachineError::Program {
        name: PROGRAM,
        remedy: "`apt-get install e2fsprogs` brings it; or ask for a writable layer that fits half of \
                 the machine's memory",
    })?;
    let host = |action| move |source| MachineError::Host { action, source };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE_FILE);
    let file = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        opened => opened.map_err(host("make the disk of the writable layer"))?,
    };
    file.set_len(bytes).map_err(host("make the disk of the writable layer"))?;
    // Reserve nothing for root, because everybody in it is root; write tables when they are used.
    let made = Command::new(program)
        .args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(host("format the disk of the writable layer"))?;
    if made.status.success() {
        return Ok(());
    }
    let _ = std::fs::remove_file(path);
    let reason = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    Err(MachineError::Monitor { reason: format!("{PROGRAM}: {reason}") })
}
