//! The agent's command line and its configuration. Pure.

pub mod line;
pub mod network;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::hello::BootStep;

/// The help text. It lists everything that the command line accepts.
pub const HELP: &str = "\
The agent inside a Burrow sandbox. Usually started by host-bridge, not by hand.

Usage:
  guest-agent launch                Become a sandbox: descriptor 0 is a socket to the host, which
                                    sends the configuration; 1 is a listening socket or /dev/null.
  guest-agent init                  Be the init of a machine: as PID 1, from an initramfs or a
                                    disk, with `burrow.` words on the kernel command line. The name
                                    `init` says the same, and so does being what a kernel starts.
  guest-agent serve --listen PATH   Serve on a Unix socket as an ordinary process, for a container
                                    or for debugging; try `host-bridge attach --uds PATH`.
  guest-agent serve --vsock PORT    Serve the host of the virtual machine that this runs in, beside
                                    an init of its own.
  guest-agent map-owners            Map the owners of files in a mount, descriptor 0, as the user
                                    namespace does that is descriptor 1. The bridge calls it.
  guest-agent mount-layer           Mount the ext4 file system in the file that is descriptor 0, and
                                    send the mount over the socket that is descriptor 1. So does it.
  guest-agent --help | --version
";

/// The settings of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    Launch,
    Init,
    Serve { listen: Listen },
    MapOwners,
    MountLayer,
    Help,
    Version,
}

/// Where an agent that is an ordinary process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Unix(PathBuf),
    Vsock(u32),
}

/// Why the command line is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    #[error("no command: use `launch`, `init` or `serve --listen PATH` (see `--help`)")]
    Nothing,
    #[error("unknown argument {0:?} (see `--help`)")]
    Unknown(OsString),
    #[error("`serve` needs `--listen PATH`, a Unix socket to listen on, or `--vsock PORT`")]
    NoSocket,
    #[error("{0:?} is not a port number")]
    NoPort(OsString),
}

/// Parses the command line, which begins with the program's name.
pub fn parse_arguments(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Invocation, UsageError> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_default();
    // The kernel passes the words that it does not know to its init.
    if Path::new(&name).file_name().is_some_and(|name| name == "init") {
        return Ok(Invocation::Init);
    }
    let verb = arguments.next().ok_or(UsageError::Nothing)?;
    let invocation = match verb.to_str() {
        Some("launch") => Invocation::Launch,
        Some("init") => return Ok(Invocation::Init),
        Some("serve") => {
            let flag = arguments.next().ok_or(UsageError::NoSocket)?;
            let is_vsock = flag == "--vsock";
            if !is_vsock && flag != "--listen" {
                return Err(UsageError::Unknown(flag));
            }
            let value = arguments.next().ok_or(UsageError::NoSocket)?;
            let port = value.to_str().and_then(|text| text.parse().ok());
            let listen = match (is_vsock, port) {
                (false, _) => Listen::Unix(value.into()),
                (true, Some(port)) => Listen::Vsock(port),
                (true, None) => return Err(UsageError::NoPort(value)),
            };
            Invocation::Serve { listen }
        }
        Some("map-owners") => Invocation::MapOwners,
        Some("mount-layer") => Invocation::MountLayer,
        Some("--help" | "-h" | "help") => Invocation::Help,
        Some("--version" | "-V") => Invocation::Version,
        _ => return Err(UsageError::Unknown(verb)),
    };
    match arguments.next() {
        Some(extra) => Err(UsageError::Unknown(extra)),
        None => Ok(invocation),
    }
}

/// The file system that everything writable of a sandbox is on. No path leads there; its directories say what
/// programs have changed.
#[derive(Clone, Debug)]
pub struct Layer {
    pub directory: Arc<OwnedFd>,
    /// Whether each directory at the top of the root has a layer of its own.
    pub is_patchwork: bool,
}

/// The settings of a running agent.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each read in one place")]
pub struct Config {
    /// Whether the agent is the init of its machine or namespace.
    pub init: bool,
    /// Whether the agent is the init of a whole machine, whose clock and kernel belong to the sandbox
    /// alone.
    pub machine: bool,
    /// The base environment of every program; each start adds its own variables.
    pub env: Vec<(String, String)>,
    /// Whether files that are written at `/` are in memory.
    pub scratch_in_memory: bool,
    /// The writable layer; none where the boot has made none, and in a machine.
    pub layer: Option<Layer>,
    /// The steps of the boot.
    pub boot: Vec<BootStep>,
    /// When `main` began, by the monotonic clock.
    pub began_us: u64,
    /// Whether the agent ends with its last link, because nobody could reach it again.
    pub ends_with_link: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Invocation, UsageError> {
        let name = ["/usr/sbin/guest-agent"];
        parse_arguments(name.iter().chain(words).map(OsString::from))
    }

    #[test]
    fn every_invocation_is_understood() {
        assert_eq!(parse(&["map-owners"]), Ok(Invocation::MapOwners));
        assert_eq!(parse(&["mount-layer"]), Ok(Invocation::MountLayer));
        assert_eq!(parse(&["launch"]), Ok(Invocation::Launch));
        assert_eq!(parse(&["init"]), Ok(Invocation::Init));
        let named = ["/init", "splash"].map(OsString::from);
        assert_eq!(parse_arguments(named), Ok(Invocation::Init));
        let listen = Listen::Vsock(1024);
        assert_eq!(parse(&["serve", "--vsock", "1024"]), Ok(Invocation::Serve { listen }));
        let listen = Listen::Unix("/run/a.sock".into());
        assert_eq!(parse(&["serve", "--listen", "/run/a.sock"]), Ok(Invocation::Serve { listen }));
        assert_eq!(parse(&["--help"]), Ok(Invocation::Help));
        assert_eq!(parse(&["--version"]), Ok(Invocation::Version));
    }

    #[test]
    fn invalid_arguments_are_named() {
        assert_eq!(parse(&[]), Err(UsageError::Nothing));
        assert_eq!(parse(&["lunch"]), Err(UsageError::Unknown("lunch".into())));
        assert_eq!(parse(&["serve"]), Err(UsageError::NoSocket));
        assert_eq!(parse(&["serve", "--listen"]), Err(UsageError::NoSocket));
        assert_eq!(parse(&["serve", "--vsock", "x"]), Err(UsageError::NoPort("x".into())));
        assert_eq!(parse(&["launch", "now"]), Err(UsageError::Unknown("now".into())));
    }
}
