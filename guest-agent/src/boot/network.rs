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

pub(super) fn set_host_name(stage: &mut Stage) -> Result<Outcome, BootError> {
    set_name(&stage.config.hostname)?;
    Ok(Outcome::Done)
}

/// Gives the machine, or the namespace, its name.
pub fn set_name(name: &str) -> Result<(), BootError> {
    nix::unistd::sethostname(name).map_err(BootError::call("setting the host name"))
}

pub(super) fn raise_loopback(_: &mut Stage) -> Result<Outcome, BootError> {
    net::raise_loopback().map_err(BootError::call("raising the loopback interface"))?;
    Ok(Outcome::Done)
}

pub(super) fn write_name_files(stage: &mut Stage) -> Result<Outcome, BootError> {
    make_directory(Path::new("/etc"), 0o755)?;
    write_names(&stage.config.hostname)?;
    let line = stage.machine.as_ref().map(|facts| &facts.line);
    match line.filter(|line| line.net.is_some() || !line.dns.is_empty()) {
        Some(line) => replace("/etc/resolv.conf", &name_servers(&line.dns))?,
        None => replace("/etc/resolv.conf", RESOLV_CONF)?,
    }
    Ok(Outcome::Done)
}

/// The file that names these servers.
fn name_servers(servers: &[String]) -> String {
    let mut text = String::new();
    for server in servers {
        text.push_str("nameserver ");
        text.push_str(server);
        text.push('\n');
    }
    text
}

/// Writes the files in which programs look for the name.
pub fn write_names(name: &str) -> Result<(), BootError> {
    let hosts = format!("127.0.0.1\tlocalhost {name}\n::1\tlocalhost ip6-localhost\n");
    replace("/etc/hosts", &hosts)?;
    replace("/etc/hostname", &format!("{name}\n"))
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
