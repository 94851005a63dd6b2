//! The sandbox's name, its loopback, and the files that describe both to programs.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::overlay::make_directory;
use super::{BootError, Outcome, Stage};
use crate::lookup::{self, DIRECTORY, Refused, Way};
use crate::sys::net;

/// A program that looks a name up fails at once instead of waiting for a server that it cannot
/// reach.
const RESOLV_CONF: &str = "# This sandbox has no network of its own, and so no name server.\n";

/// The name of a sandbox that is given none.
const UNNAMED: &str = "burrow";

const HOSTS: &str = "/etc/hosts";
const HOSTNAME: &str = "/etc/hostname";
const SERVERS: &str = "/etc/resolv.conf";

pub(super) fn set_host_name(stage: &mut Stage) -> Result<Outcome, BootError> {
    set_name(&name_of(stage))?;
    Ok(Outcome::Done)
}

/// Its host name, which a root that is used directly may already have.
fn name_of(stage: &Stage) -> String {
    let mut name = stage.config.hostname.clone();
    if name.is_empty() && is_in_place(stage) {
        name = std::fs::read_to_string(HOSTNAME).unwrap_or_default();
    }
    Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or(UNNAMED).to_owned()
}

fn is_in_place(stage: &Stage) -> bool {
    stage.machine.as_ref().is_some_and(|facts| facts.in_place)
}

/// Gives the machine, or the namespace, its name.
pub fn set_name(name: &str) -> Result<(), BootError> {
    nix::unistd::sethostname(name).map_err(BootError::call("setting the host name"))
}

pub(super) fn raise_loopback(_: &mut Stage) -> Result<Outcome, BootError> {
    net::raise_loopback().map_err(BootError::call("raising the loopback interface"))?;
    Ok(Outcome::Done)
}

/// A root that is used directly keeps its files, except for explicit settings; and an init finds name servers
/// by itself.
pub(super) fn write_name_files(stage: &mut Stage) -> Result<Outcome, BootError> {
    make_directory(Path::new("/etc"), 0o755)?;
    let is_named = !stage.config.hostname.is_empty();
    if is_named || !is_in_place(stage) || !Path::new(HOSTS).exists() {
        write_names(&name_of(stage))?;
    }
    match &stage.machine {
        Some(facts) if !facts.line.dns.is_empty() => {
            replace(SERVERS, &name_servers(&facts.line.dns))?;
        }
        Some(facts) if facts.in_place || facts.line.hand_over.is_some() => {}
        Some(facts) if facts.line.net.is_some() => replace(SERVERS, "")?,
        _ => replace(SERVERS, RESOLV_CONF)?,
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
    replace(HOSTS, &hosts)?;
    replace(HOSTNAME, &format!("{name}\n"))
}

/// Replaces a file, whatever it is: on many hosts it is a link into `/run`, which would be dangling. An
/// adoption does it while programs run, so `lookup` finds the directory, and the file is made again.
fn replace(path: &str, text: &str) -> Result<(), BootError> {
    let failed = |action| BootError::path::<Errno>(action, path);
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let directory = lookup::open(parent, DIRECTORY, Way::Follow)
        .map_err(Refused::errno)
        .map_err(failed("finding the place of"))?;
    match unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(failed("replacing")(errno)),
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let permissions = Mode::from_bits_truncate(0o644);
    let made = openat(&directory, name, flags, permissions).map_err(failed("making"))?;
    fchmod(&made, permissions).map_err(failed("writing"))?;
    File::from(made).write_all(text.as_bytes()).map_err(BootError::path("writing", path))
}
