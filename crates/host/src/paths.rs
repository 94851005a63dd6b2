//! The directories of the bridge, and the search for the agent.
//!
//! Everything here is derived from the environment, the user id and the path of the running
//! program; nothing is created before [`Paths::prepare`]. The two directories hold sockets that
//! control sandboxes and logs of what ran in them, so only their owner can open them.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A Unix socket's path, with its closing zero: `sockaddr_un` has room for no more.
pub const SOCKET_PATH_BYTES_MAX: usize = 108;
/// The mode of every directory that the bridge makes for itself.
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// The mode of every file that the bridge makes for itself.
pub const PRIVATE_FILE: u32 = 0o600;

/// The prefix of a temporary file's name.
const NEW_SUFFIX: &str = ".new";

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
/// Read by the machines that have a kit.
const IMAGES_VARIABLE: &str = "BURROW_IMAGES";
const AGENT_VARIABLE: &str = "BURROW_AGENT";
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
pub const VARIABLES: [Variable; 5] = [
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
        name: AGENT_VARIABLE,
        about: "the guest-agent program that runs in sandboxes",
        usual: ["beside host-bridge, or in the build directory"; 2],
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
        let state = match set(STATE_VARIABLE) {
            Some(path) => absolute(STATE_VARIABLE, path)?,
            None if uid == 0 => PathBuf::from("/var/lib/burrow"),
            None => match (set("XDG_STATE_HOME"), set("HOME")) {
                (Some(path), _) => absolute("XDG_STATE_HOME", path)?.join("burrow"),
                (None, Some(home)) => absolute("HOME", home)?.join(".local/state/burrow"),
                (None, None) => return Err(PathsError::NoPlace { variable: STATE_VARIABLE }),
            },
        };
        Ok(Self { runtime, state })
    }

    /// Makes both directories for their owner alone, and refuses those that are somebody else's:
    /// whoever owns the directory commands the sandboxes in it.
    pub fn prepare(&self) -> Result<(), PathsError> {
        let bytes_max = SOCKET_PATH_BYTES_MAX - 1 - SOCKET_NAME_LONGEST.len();
        let bytes = self.runtime.as_os_str().as_bytes().len();
        if bytes > bytes_max {
            let (variable, path) = (RUNTIME_VARIABLE, self.runtime.clone());
            return Err(PathsError::TooLong { variable, path, bytes, bytes_max });
        }
        prepare_private(RUNTIME_VARIABLE, &self.runtime)?;
        prepare_private(STATE_VARIABLE, &self.state)
    }

    /// The control socket of `serve`.
    pub fn control_socket(&self) -> PathBuf {
        self.runtime.join("control.sock")
    }

    /// The file that a running `serve` keeps locked, with its process id in it.
    pub fn runtime_lock(&self) -> PathBuf {
        self.runtime.join("serve.pid")
    }

    /// The same for the records, which another runtime directory's bridge could share.
    pub fn state_lock(&self) -> PathBuf {
        self.state.join("serve.pid")
    }

    /// One directory per sandbox, by its id: sockets.
    pub fn runtime_boxes(&self) -> PathBuf {
        self.runtime.join("boxes")
    }

    /// One directory per namespace, and in it one per snapshot.
    pub fn snapshots(&self) -> PathBuf {
        self.state.join("snapshots")
    }

    /// The files of the audit log.
    pub fn audit(&self) -> PathBuf {
        self.state.join("audit")
    }

    /// The usage of namespaces and keys on the current day.
    pub fn usage(&self) -> PathBuf {
        self.state.join("usage.json")
    }

    /// Notebooks, history, artifacts: one file of rows.
    pub fn store(&self) -> PathBuf {
        self.state.join("burrow.db")
    }

    /// The bytes of artifacts, by their digests.
    pub fn artifacts(&self) -> PathBuf {
        self.state.join("artifacts")
    }

    /// What the variables of notebooks were, sealed: one directory per namespace, and in it one per
    /// notebook.
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

/// Writes a file of a directory so that a reader and a crash find the old one or the new.
pub fn write_durably(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = directory.join(format!("{name}{NEW_SUFFIX}"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    let mut file = options.open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(name))?;
    File::open(directory)?.sync_all()
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
    // In a directory that anybody may write to, the name could be somebody else's symlink to a
    // directory of ours.
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

/// No agent was found; lists where it was searched.
#[derive(Debug, thiserror::Error)]
#[error(
    "the guest-agent was not found.{}\nBuild it with `just build`, or set {AGENT_VARIABLE} to its path.",
    describe_places(places)
)]
pub struct AgentMissing {
    /// Each path, with the reason why it was not used.
    pub places: Vec<(PathBuf, String)>,
}

/// A line for each place that was looked at.
pub(crate) fn describe_places(places: &[(PathBuf, String)]) -> String {
    places.iter().fold(String::new(), |mut text, (path, why)| {
        let _ = write!(text, "\n  {}: {why}", path.display());
        text
    })
}

/// Finds the agent that goes into machines: where `BURROW_AGENT` says, beside this program, or
/// where a build leaves it.
pub fn find_agent() -> Result<PathBuf, AgentMissing> {
    let named = std::env::var_os(AGENT_VARIABLE).filter(|value| !value.is_empty());
    let program = std::env::current_exe().ok();
    let places = agent_places(named.map(PathBuf::from), program.as_deref());
    first_program(places).map_err(|places| AgentMissing { places })
}

/// Where the agent may be, in order. A named one is the only one: to run another silently would
/// hide the mistake.
fn agent_places(named: Option<PathBuf>, program: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = named {
        return vec![path];
    }
    let Some(mut directory) = program.and_then(Path::parent) else { return Vec::new() };
    let mut places = vec![directory.join("guest-agent")];
    // Test programs live one level below the profile's directory.
    if directory.ends_with("deps") {
        directory = directory.parent().unwrap_or(directory);
    }
    if let (Some(profile), Some(target)) = (directory.file_name(), directory.parent()) {
        let built = target.join(format!("{}-unknown-linux-musl", std::env::consts::ARCH));
        for profile in [profile, "release".as_ref(), "debug".as_ref()] {
            let place = built.join(profile).join("guest-agent");
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
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
