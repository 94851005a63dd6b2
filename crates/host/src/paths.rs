//! The directories of the bridge.
//!
//! Everything here is derived from the environment and the user id; nothing is created before
//! [`Paths::prepare`]. The two directories contain sockets that control sandboxes and logs of what ran in
//! them, so only their owner can open them.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A Unix socket's path, with its closing zero: `sockaddr_un` has room for no more.
pub const SOCKET_PATH_BYTES_MAX: usize = 108;
/// The mode of every directory that the bridge makes for itself.
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// The mode of every file that the bridge makes for itself.
pub const PRIVATE_FILE: u32 = 0o600;

/// The prefix of a temporary file's name.
const NEW_SUFFIX: &str = ".new";

/// The name of the socket of `serve`.
pub(crate) const CONTROL_SOCKET: &str = "control.sock";

/// In a runtime directory, the link to the state directory of the same bridge.
pub(crate) const STATE_LINK: &str = "state-directory";

/// The longest name below the runtime directory that a socket is bound to.
const SOCKET_NAME_LONGEST: &str = "/boxes/0123456789ab/agent.sock";

/// The bridge's two directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Sockets and locks; gone after a reboot.
    pub runtime: PathBuf,
    /// Records and logs; kept.
    pub state: PathBuf,
}

/// Why the bridge's directories cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    #[error(
        "neither {variable} nor HOME is set, so there is no directory for sandboxes; set {variable} to a directory of yours"
    )]
    NoPlace { variable: &'static str },
    #[error(
        "{path:?} is not shown to sandboxes, which have a directory of their own there; set {variable} to \
         another directory"
    )]
    NotShown { variable: &'static str, path: PathBuf },
    #[error("{variable} is {path:?}, which is not an absolute path")]
    Relative { variable: &'static str, path: PathBuf },
    #[error("cannot use {path:?}: {source}; set {variable} to a directory of yours")]
    Unusable { variable: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path:?} belongs to user {owner}, not to you (user {me}); remove it, or set {variable} to a directory of yours"
    )]
    NotYours { variable: &'static str, path: PathBuf, owner: u32, me: u32 },
    #[error("{path:?} is not a directory; remove it, or set {variable} to a directory of yours")]
    NotADirectory { variable: &'static str, path: PathBuf },
    #[error(
        "the path {path:?} is {bytes} bytes long, but sockets in it allow at most {bytes_max}; set {variable} to a shorter one"
    )]
    TooLong { variable: &'static str, path: PathBuf, bytes: usize, bytes_max: usize },
}

const RUNTIME_VARIABLE: &str = "BURROW_RUNTIME_DIR";
const STATE_VARIABLE: &str = "BURROW_STATE_DIR";
const CACHE_VARIABLE: &str = "BURROW_CACHE_DIR";
/// Read by the machines that have a kit.
const IMAGES_VARIABLE: &str = "BURROW_IMAGES";
pub(crate) const AGENT_VARIABLE: &str = "BURROW_AGENT";
/// Says where the helper is: see [`helper`](crate::helper).
pub const HELPER_VARIABLE: &str = "BURROW_HELPER";

/// An environment variable that sets a path, for documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: &'static str,
    pub about: &'static str,
    /// The defaults for root and for other users.
    pub usual: [&'static str; 2],
}

/// All of them except the one for the configuration, which `settings` handles.
pub const VARIABLES: [Variable; 6] = [
    Variable {
        name: STATE_VARIABLE,
        about: "the state directory: records and logs of sandboxes, images, keys, the audit log (`audit/`)",
        usual: ["/var/lib/burrow", "$XDG_STATE_HOME/burrow, otherwise ~/.local/state/burrow"],
    },
    Variable {
        name: RUNTIME_VARIABLE,
        about: "the runtime directory, which may be empty after a reboot: sockets (`control.sock`) and locks",
        usual: ["/run/burrow", "$XDG_RUNTIME_DIR/burrow, otherwise /tmp/burrow-UID"],
    },
    Variable {
        name: CACHE_VARIABLE,
        about: "packages that were installed for sandboxes over the host's root, which see them here",
        usual: ["/var/cache/burrow", "$XDG_CACHE_HOME/burrow, otherwise ~/.cache/burrow"],
    },
    Variable {
        name: AGENT_VARIABLE,
        about: "the guest-agent program that runs in sandboxes",
        usual: ["beside host-bridge, in the build directory, or the one that host-bridge carries";
            2],
    },
    Variable {
        name: HELPER_VARIABLE,
        about: "the program that mounts workspaces, host-bridge; programs that embed it need this",
        usual: ["the running host-bridge, otherwise the one beside the program"; 2],
    },
    Variable {
        name: IMAGES_VARIABLE,
        about: "the kit for virtual machines: kernel, initramfs and images",
        usual: ["beside host-bridge, in the build directory, or where packages install it"; 2],
    },
];

/// The directory for what sandboxes read and what can be fetched again. The first file in it creates it; nothing
/// in it is the bridge's own.
pub fn cache_directory() -> Result<PathBuf, PathsError> {
    let uid = nix::unistd::geteuid().as_raw();
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path =
        place(&set, uid, CACHE_VARIABLE, ["/var/cache/burrow", "XDG_CACHE_HOME", ".cache/burrow"])?;
    // Every sandbox has its own of these.
    match ["/tmp", "/run"].iter().find(|own| path.starts_with(own)) {
        Some(_) => Err(PathsError::NotShown { variable: CACHE_VARIABLE, path }),
        None => Ok(path),
    }
}

/// A directory that a variable names, or the usual one: of root, in what the second variable names, in a home.
fn place(
    set: &dyn Fn(&str) -> Option<PathBuf>,
    uid: u32,
    variable: &'static str,
    [of_root, of_user, in_home]: [&'static str; 3],
) -> Result<PathBuf, PathsError> {
    Ok(match (set(variable), set(of_user), set("HOME")) {
        (Some(path), ..) => absolute(variable, path)?,
        _ if uid == 0 => PathBuf::from(of_root),
        (None, Some(path), _) => absolute(of_user, path)?.join("burrow"),
        (None, None, Some(home)) => absolute("HOME", home)?.join(in_home),
        (None, None, None) => return Err(PathsError::NoPlace { variable }),
    })
}

impl Paths {
    /// Derives the directories; creates nothing.
    pub fn from_environment() -> Result<Self, PathsError> {
        Self::resolve(&|name| std::env::var_os(name), nix::unistd::geteuid().as_raw())
    }

    fn resolve(variable: &dyn Fn(&str) -> Option<OsString>, uid: u32) -> Result<Self, PathsError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let runtime = match set(RUNTIME_VARIABLE) {
            Some(path) => absolute(RUNTIME_VARIABLE, path)?,
            None if uid == 0 => PathBuf::from("/run/burrow"),
            None => match set("XDG_RUNTIME_DIR") {
                Some(path) => absolute("XDG_RUNTIME_DIR", path)?.join("burrow"),
                None => PathBuf::from(format!("/tmp/burrow-{uid}")),
            },
        };
        let usual = ["/var/lib/burrow", "XDG_STATE_HOME", ".local/state/burrow"];
        let state = place(&set, uid, STATE_VARIABLE, usual)?;
        Ok(Self { runtime, state })
    }

    /// Makes both directories for their owner only, and refuses somebody else's: the owner of the
    /// directory controls the sandboxes in it.
    pub fn prepare(&self) -> Result<(), PathsError> {
        let bytes_max = SOCKET_PATH_BYTES_MAX - 1 - SOCKET_NAME_LONGEST.len();
        let bytes = self.runtime.as_os_str().as_bytes().len();
        if bytes > bytes_max {
            let (variable, path) = (RUNTIME_VARIABLE, self.runtime.clone());
            return Err(PathsError::TooLong { variable, path, bytes, bytes_max });
        }
        prepare_private(RUNTIME_VARIABLE, &self.runtime)?;
        prepare_private(STATE_VARIABLE, &self.state)?;
        Ok(())
    }

    /// Leaves the link from the runtime directory to the state directory, for the other bridges of this
    /// host. Without it they find less. A bridge that serves does it.
    pub fn link_state(&self) {
        let link = self.runtime.join(STATE_LINK);
        if fs::read_link(&link).is_ok_and(|known| known == self.state) {
            return;
        }
        // By a rename, so that there is a link at every moment.
        let made = link.with_extension("new");
        let _ = fs::remove_file(&made);
        if symlink(&self.state, &made).is_ok() {
            let _ = fs::rename(&made, &link);
        }
    }

    /// The control socket of `serve`.
    pub fn control_socket(&self) -> PathBuf {
        self.runtime.join(CONTROL_SOCKET)
    }

    /// The file that a running `serve` keeps locked, with its process id in it.
    pub fn runtime_lock(&self) -> PathBuf {
        self.runtime.join("serve.pid")
    }

    /// Locks the records, which a bridge with another runtime directory could share.
    pub fn state_lock(&self) -> PathBuf {
        self.state.join("serve.pid")
    }

    /// The file that is locked while somebody starts the daemon: see [`Starting`](crate::lock::Starting).
    pub fn start_lock(&self) -> PathBuf {
        self.runtime.join("start.lock")
    }

    /// The log of a daemon that was started by a verb.
    pub fn daemon_log(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    /// One directory per sandbox, by its id: sockets.
    pub fn runtime_boxes(&self) -> PathBuf {
        self.runtime.join("boxes")
    }

    /// One directory per namespace, and in it one per snapshot.
    pub fn snapshots(&self) -> PathBuf {
        self.state.join("snapshots")
    }

    /// Which uploads of snapshots to buckets have begun, one directory per workspace.
    pub fn snapshot_uploads(&self) -> PathBuf {
        self.state.join("snapshot-uploads")
    }

    /// One directory per namespace, and in it one file per template.
    pub fn templates(&self) -> PathBuf {
        self.state.join("templates")
    }

    /// One directory per volume.
    pub fn volumes(&self) -> PathBuf {
        self.state.join("volumes")
    }

    /// The private key by which SSH clients know this host.
    pub fn ssh_host_key(&self) -> PathBuf {
        self.state.join("ssh/host_key")
    }

    /// The receipts, and the key that signs them.
    pub fn receipts(&self) -> PathBuf {
        self.state.join("receipts")
    }

    /// The files of the audit log.
    pub fn audit(&self) -> PathBuf {
        self.state.join("audit")
    }

    /// What has happened to sandboxes: one directory per namespace.
    pub fn events(&self) -> PathBuf {
        self.state.join("events")
    }

    /// The places and dead letters of webhooks: one directory per webhook.
    pub fn webhooks(&self) -> PathBuf {
        self.state.join("webhooks")
    }

    /// The usage of namespaces and keys on the current day.
    pub fn usage(&self) -> PathBuf {
        self.state.join("usage.json")
    }

    /// What sandboxes and namespaces have cost, by hour.
    pub fn costs(&self) -> PathBuf {
        self.state.join("costs")
    }

    /// The answers to idempotent calls of the server, one file each.
    pub fn answers(&self) -> PathBuf {
        self.state.join("answers")
    }

    /// Notebooks, history, artifacts: one file of rows.
    pub fn store(&self) -> PathBuf {
        self.state.join("burrow.db")
    }

    /// The bytes of artifacts, by their digests.
    pub fn artifacts(&self) -> PathBuf {
        self.state.join("artifacts")
    }

    /// The sealed variables of notebooks: one directory per namespace, and in it one per notebook.
    pub fn notebooks(&self) -> PathBuf {
        self.state.join("notebooks")
    }

    /// Images: their contents, layers, roots and names.
    pub fn images(&self) -> PathBuf {
        self.state.join("images")
    }

    /// One directory per sandbox, by its id: record and logs.
    pub fn state_boxes(&self) -> PathBuf {
        self.state.join("boxes")
    }
}

fn absolute(variable: &'static str, path: PathBuf) -> Result<PathBuf, PathsError> {
    if path.is_absolute() { Ok(path) } else { Err(PathsError::Relative { variable, path }) }
}

/// Creates one private directory and its parents.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path)
}

/// Writes a file of a directory so that a reader and a crash find the old one or the new. A
/// half-written file is removed after a failure: a full disk has no room for it.
pub fn write_durably(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace(directory, name, bytes, File::sync_all)?;
    File::open(directory)?.sync_all()
}

/// The same for readers and for a process that dies: the kernel has it, and the disk has it after
/// [`sync_written`].
pub fn write_unsynced(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    replace(directory, name, bytes, |_| Ok(()))
}

/// Syncs what [`write_unsynced`] wrote, or whatever has replaced it.
pub fn sync_written(directory: &Path, name: &str) -> io::Result<()> {
    File::open(directory.join(name))?.sync_all()?;
    File::open(directory)?.sync_all()
}

fn replace(
    directory: &Path,
    name: &str,
    bytes: &[u8],
    sync: fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = directory.join(format!("{name}{NEW_SUFFIX}"));
    let written = write_new(&new, bytes)
        .and_then(|file| sync(&file))
        .and_then(|()| fs::rename(&new, directory.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn prepare_private(variable: &'static str, path: &Path) -> Result<(), PathsError> {
    let unusable = |source| PathsError::Unusable { variable, path: path.to_owned(), source };
    match make_private_directory(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(PathsError::NotADirectory { variable, path: path.to_owned() });
        }
        Err(error) => return Err(unusable(error)),
    }
    let me = nix::unistd::geteuid().as_raw();
    let target = fs::metadata(path).map_err(unusable)?;
    // In a world-writable directory, the name could be somebody else's symlink to a directory of
    // ours.
    let link = fs::symlink_metadata(path).map_err(unusable)?;
    for owner in [target.uid(), link.uid()] {
        if owner != me {
            return Err(PathsError::NotYours { variable, path: path.to_owned(), owner, me });
        }
    }
    if target.mode() & 0o777 != PRIVATE_DIRECTORY {
        let private = fs::Permissions::from_mode(PRIVATE_DIRECTORY);
        fs::set_permissions(path, private).map_err(unusable)?;
    }
    Ok(())
}

/// A line for each place that was looked at.
pub(crate) fn describe_places(places: &[(PathBuf, String)]) -> String {
    places.iter().fold(String::new(), |mut text, (path, why)| {
        let _ = write!(text, "\n  {}: {why}", path.display());
        text
    })
}

/// The first place with a program, or what is wrong with each.
pub(crate) fn first_program(places: Vec<PathBuf>) -> Result<PathBuf, Vec<(PathBuf, String)>> {
    let mut missing = Vec::new();
    for place in places {
        match fs::metadata(&place) {
            Ok(found) if !found.is_file() => missing.push((place, "not a file".to_owned())),
            Ok(found) if found.mode() & 0o111 == 0 => {
                missing.push((place, "not executable".to_owned()));
            }
            Ok(_) => return Ok(place),
            Err(error) => missing.push((place, error.to_string())),
        }
    }
    Err(missing)
}

#[cfg(test)]
mod tests;
