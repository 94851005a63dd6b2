//! A directory of the host that a machine has at `/workspace`: what shows it, and what of it.
//!
//! ```text
//!  guest ══ virtio-fs ══ QEMU ── socket ── virtiofsd ── mounts that nobody else has ── the directory
//! ```
//!
//! A guest is hostile, its kernel included; so what may be written is decided by the mounts that the daemon
//! sees, and never by what the guest was told. [`beside`] is the bridge's side. [`Share::become_daemon`] is a
//! process that has one thread: it makes the mounts, gives up what the daemon shall never do (`filter`),
//! and then is the daemon, which shuts itself in the directory.

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

/// There are two programs of that name, which are told the same in different words.
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
    // What is in the way of the socket may be reached through a link; the daemon's place must not.
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
        let told = Command::new(daemon).arg("--help").stdin(Stdio::null()).output();
        let told = told.map_err(|source| MachineError::Host { action: "run virtiofsd", source })?;
        let has = |word: &str| String::from_utf8_lossy(&told.stdout).contains(word);
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

    /// What is written on either side is to be seen on the other at once, so nothing that the guest knows
    /// of a file holds for longer than a question; what is in files may be kept while they are open.
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

/// An ordinary user makes mounts in a user namespace, where there is nobody else.
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
    #[error("could not give up what it shall not do: {0}")]
    Filter(#[from] seccompiler::Error),
}
