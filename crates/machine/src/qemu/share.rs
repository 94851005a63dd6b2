//! A directory of the host at `/workspace` of a machine: which program shares it, and how.
//!
//! ```text
//!  guest ══ virtio-fs ══ QEMU ── socket ── virtiofsd ── mounts that nobody else has ── the directory
//! ```
//!
//! A guest is hostile, its kernel included. So the mounts that the daemon sees decide what may be written,
//! never the guest's own settings. [`beside`] is the bridge's side. [`Share::become_daemon`] is a process
//! that has one thread: it makes the mounts, applies `filter`, and then executes the daemon, which confines
//! itself to the directory.

mod filter;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{getegid, geteuid};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use crate::MachineError;
use crate::kind::Program;
use crate::limits::SHARED_FILES_MAX;
use crate::process::bind::{Bind, BindError};
use crate::vmm::{Beside, Plan, SHARER};
use host::helper::find_helper;

/// The hidden verb of the process that becomes the daemon.
pub const VERB: &str = "__share";

/// The daemon.
pub const DAEMON: Program = Program {
    label: "virtiofsd",
    name: SHARER,
    remedy: "a workspace that is mounted in a qemu machine needs it; `apt-get install \
             qemu-system-common` brings it on Debian 12, `apt-get install virtiofsd` on later releases",
};

/// Capabilities that the daemon would keep and has no use for.
const GIVEN_UP: &str = "-mknod:-setfcap:-fsetid";

/// See the module's description.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    daemon: PathBuf,
    flavour: Flavour,
    /// From the host's directory to the place where the daemon finds it.
    bind: Bind,
    socket: PathBuf,
}

/// Two programs have that name; they take the same options in different words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Flavour {
    /// The one that came with QEMU until its release 8.
    Qemu,
    /// The one that came after.
    Later,
}

/// The program that shows this directory to the machine of this plan.
pub fn beside(bind: &Bind, plan: &Plan) -> Result<Beside, MachineError> {
    let daemon = DAEMON.find()?;
    let flavour = Flavour::of(&daemon)?;
    let host = |action| move |source| MachineError::Host { action, source };
    // The path to the socket may contain links; the daemon's own directory must not.
    let place = plan.shared().canonicalize().map_err(host("find the machine's directory"))?;
    let bind = Bind { target: place.display().to_string(), ..bind.clone() };
    let share = Share { daemon, flavour, bind, socket: plan.share() };
    let value = serde_json::to_string(&share).map_err(io::Error::from);
    // The machine's shell runs it.
    let program = find_helper()?.program_for_others();
    Ok(Beside {
        program,
        option: VERB,
        value: value.map_err(host("describe a directory"))?.into(),
        socket: plan.share(),
    })
}

impl Flavour {
    /// Asks the program for its help.
    fn of(daemon: &Path) -> Result<Self, MachineError> {
        let help = Command::new(daemon).arg("--help").stdin(Stdio::null()).output();
        let help = help.map_err(|source| MachineError::Host { action: "run virtiofsd", source })?;
        let has = |word: &str| String::from_utf8_lossy(&help.stdout).contains(word);
        Ok(if has("--shared-dir") { Self::Later } else { Self::Qemu })
    }
}

impl Share {
    /// Is the daemon from here on. What is returned is why not.
    pub fn become_daemon(&self) -> ShareError {
        match self.prepare() {
            Ok(mut daemon) => {
                let source = daemon.exec();
                ShareError::Call { action: "run virtiofsd", source }
            }
            Err(error) => error,
        }
    }

    fn prepare(&self) -> Result<Command, ShareError> {
        let failed = |action| move |source| ShareError::Call { action, source };
        let is_root = geteuid().is_root();
        if !is_root {
            become_root_of_namespace()?;
        }
        self.bind.lay()?;
        // There only when all is mounted, because QEMU is started when it is.
        let listener = UnixListener::bind(&self.socket).map_err(failed("make its socket"))?;
        fcntl_setfd(listener.as_fd(), FdFlags::empty())
            .map_err(|errno| failed("keep its socket")(errno.into()))?;
        let (_, files_max) = getrlimit(Resource::RLIMIT_NOFILE)
            .map_err(|errno| failed("read a limit")(errno.into()))?;
        let files_max = files_max.min(SHARED_FILES_MAX);
        let mut command = Command::new(&self.daemon);
        // It is the daemon's from here on.
        command.args(self.words(listener.into_raw_fd(), files_max)).env_clear();
        filter::apply(!is_root)?;
        Ok(command)
    }

    /// A change on either side must be visible on the other at once, so the guest caches nothing about a file
    /// longer than one request; it may cache the content of open files.
    fn words(&self, socket: i32, files_max: u64) -> Vec<OsString> {
        let own = [format!("--fd={socket}"), format!("--rlimit-nofile={files_max}")];
        let rest: Vec<String> = match self.flavour {
            Flavour::Qemu => [
                &format!("source={}", escape(&self.bind.target)),
                "sandbox=namespace",
                "cache=auto",
                "timeout=0",
                "no_xattr",
                "log_level=warn",
                &format!("modcaps={GIVEN_UP}"),
            ]
            .into_iter()
            .flat_map(|option| ["-o".to_owned(), option.to_owned()])
            .collect(),
            Flavour::Later => [
                &format!("--shared-dir={}", self.bind.target),
                "--sandbox=namespace",
                "--cache=never",
                "--log-level=warn",
                &format!("--modcaps={GIVEN_UP}"),
            ]
            .map(str::to_owned)
            .into(),
        };
        own.into_iter().chain(rest).map(OsString::from).collect()
    }
}

/// An ordinary user makes mounts in a new user namespace.
fn become_root_of_namespace() -> Result<(), ShareError> {
    let failed = |action| move |source| ShareError::Call { action, source };
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|errno| failed("make a user namespace")(errno.into()))?;
    // The kernel lets an ordinary user map a group only after the first of these.
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ] {
        std::fs::write(file, text).map_err(failed("become root of a user namespace"))?;
    }
    Ok(())
}

/// A path as the value of an option among others: they are parted by commas.
fn escape(path: &str) -> String {
    path.replace('\\', "\\\\").replace(',', "\\,")
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        serde_json::from_str(text).map_err(ShareError::Words)
    }
}

/// Why a directory is not shown.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("it does not say what is shown: {0}")]
    Words(serde_json::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("could not {action}: {source}")]
    Call { action: &'static str, source: io::Error },
    #[error("could not restrict itself: {0}")]
    Filter(#[from] seccompiler::Error),
}
