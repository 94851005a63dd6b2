//! The sandbox's name, its loopback, and the files that tell programs of both.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::root::make_directory;
use super::{BootError, Outcome, Stage};
use crate::sys::net;

/// A program that looks a name up fails at once instead of waiting for a server that it cannot
/// reach.
const RESOLV_CONF: &str = "# This sandbox has no network of its own, and so no name server.\n";

pub(super) fn set_host_name(stage: &mut Stage<'_>) -> Result<Outcome, BootError> {
    nix::unistd::sethostname(&stage.config.hostname)
        .map_err(BootError::call("setting the host name"))?;
    Ok(Outcome::Done)
}

pub(super) fn raise_loopback(_: &mut Stage<'_>) -> Result<Outcome, BootError> {
    net::raise_loopback().map_err(BootError::call("raising the loopback interface"))?;
    Ok(Outcome::Done)
}

pub(super) fn write_name_files(stage: &mut Stage<'_>) -> Result<Outcome, BootError> {
    let name = &stage.config.hostname;
    make_directory(Path::new("/etc"), 0o755)?;
    let hosts = format!("127.0.0.1\tlocalhost {name}\n::1\tlocalhost ip6-localhost\n");
    replace("/etc/hosts", &hosts)?;
    replace("/etc/hostname", &format!("{name}\n"))?;
    replace("/etc/resolv.conf", RESOLV_CONF)?;
    Ok(Outcome::Done)
}

/// Puts a file in the place of whatever is there: on many hosts it is a link into `/run`, which
/// would lead nowhere.
fn replace(path: &str, text: &str) -> Result<(), BootError> {
    let path = Path::new(path);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(BootError::path("replacing", path)(error));
        }
        _ => {}
    }
    std::fs::write(path, text).map_err(BootError::path("writing", path))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
        .map_err(BootError::path("writing", path))
}
