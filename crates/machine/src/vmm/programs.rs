//! The programs that are a machine, and the shell that keeps them together: when the machine's own
//! process ends those beside it go with it, whatever has become of the bridge.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::net::unix::pipe::{self, Receiver};
use tokio::process::Command;

use super::{Plan, Supervisor};
use crate::{MachineError, MachineExit, ProcessIdentity};

/// The relay's name, by which distributions and its own installer know it.
pub const RELAY: &str = "vhost-device-vsock";

/// What shows a directory of the host to a machine, by its name.
pub const SHARER: &str = "virtiofsd";

/// What runs beside a machine that lives no longer than that, and what has ended when it has.
pub const BESIDE: [(&str, &str); 2] = [
    (RELAY, "the relay of its vsock has ended"),
    (SHARER, "virtiofsd has ended, by which it had its workspace"),
];

/// What has to run. Those beside the machine go first, and the machine when their sockets are there.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    pub beside: Vec<Beside>,
    pub machine: Vec<OsString>,
    /// The socket of a virtio-serial port, by which the agent of a machine without a vsock is called.
    pub serial: Option<PathBuf>,
    /// The machine's console is its stdout, and not a socket that it offers.
    pub console_is_stdout: bool,
    /// What was asked for and this kind of machine does not hold, in words.
    pub warnings: Vec<String>,
}

/// A program behind a device of the monitor's: between its vsock and our socket, or between its files and
/// the host's.
#[derive(Clone, Debug)]
pub struct Beside {
    pub program: PathBuf,
    /// Its one option, or verb, and the value of that.
    pub option: &'static str,
    pub value: OsString,
    /// The socket that it makes for the monitor.
    pub socket: PathBuf,
}

/// The supervisor: a directory to remove at the end, whether the machine is tied to us, then of each
/// program beside it the option, the value and the socket, and behind a `--` the words of the machine.
///
/// Nothing is started before the bridge says a word, which it does when it has put down who this is:
/// one that is cut off before leaves nothing.
///
/// One that is tied ends when our end of the shell's stdin closes, which the kernel sees to whatever
/// becomes of the bridge. It is killed then and not asked: nobody is left who would want an answer.
const SUPERVISOR: &str = r#"
directory=$1 tied=$2
shift 2
exec 3<&0 </dev/null
read -r _ <&3 || exit 1
others=
until [ "$1" = -- ]; do
    "$1" "$2" "$3" 3<&- >&2 &
    other=$!
    others="$others $other"
    tries=0
    until [ -S "$4" ] || [ "$tries" -ge 500 ] || ! kill -0 "$other" 2>/dev/null; do
        sleep 0.01
        tries=$((tries + 1))
    done
    if ! [ -S "$4" ] || ! kill -0 "$other" 2>/dev/null; then
        echo "$1 does not come up" >&2
        kill -KILL $others 2>/dev/null
        exit 1
    fi
    shift 4
done
shift
"$@" 3<&- &
machine=$!
exec >&2
if [ -n "$tied" ]; then
    { read -r _; kill -KILL "$machine" $others; } <&3 >/dev/null 2>&1 &
    others="$others $!"
fi
exec 3<&-
wait "$machine"
status=$?
[ -z "$others" ] || kill -KILL $others 2>/dev/null
[ -z "$directory" ] || rm -rf -- "$directory"
exit "$status"
"#;

/// A started supervisor, and what ties it to us if anything does.
pub struct Started {
    pub supervisor: Supervisor,
    /// Its stdin. Closed, it ends a machine that is tied to us.
    tie: PipeWriter,
    is_tied: bool,
    /// Where the console is read, if that is the machine's stdout.
    pub console: Option<Receiver>,
}

impl Started {
    /// Lets it start what it is for. What is returned is what a machine is tied to us by.
    pub fn go(self) -> io::Result<Option<PipeWriter>> {
        let mut tie = self.tie;
        tie.write_all(b"go\n")?;
        Ok(self.is_tied.then_some(tie))
    }
}

/// How the machine's own process has ended, of which the shell tells by its own exit code.
pub fn from_shell(exit: MachineExit) -> MachineExit {
    match exit {
        MachineExit::Exited { code: code @ 129..=192 } => {
            MachineExit::Signaled { signal: code - 128 }
        }
        exit => exit,
    }
}

/// Resolves when a process of this name that the supervisor has started is gone. Where there is none, it
/// is so already if there should be one, and never otherwise.
pub async fn outlived(supervisor: Supervisor, name: &str, is_needed: bool) {
    let found = supervisor.children().into_iter().find_map(|identity| {
        is_called(&identity, name).then(|| Supervisor::find(&identity).ok().flatten()).flatten()
    });
    match found {
        Some(process) => drop(process.exited().await),
        None if is_needed => {}
        None => std::future::pending().await,
    }
}

/// Whether the machine itself is there: a child of the supervisor that is neither beside it nor the
/// shell that watches the tie.
pub fn has_machine(supervisor: &Supervisor) -> bool {
    let others = || BESIDE.map(|(name, _)| name).into_iter().chain(["sh"]);
    let children = supervisor.children();
    children.iter().any(|child| !others().any(|name| is_called(child, name)))
}

fn is_called(process: &ProcessIdentity, name: &str) -> bool {
    let command = std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
    // The kernel keeps fifteen letters of a name.
    command.is_ok_and(|command| {
        let command = command.trim_end();
        !command.is_empty() && name.starts_with(command)
    })
}

impl Programs {
    /// Starts them. `log` takes what they say themselves.
    pub fn start(&self, plan: &Plan, tied: bool, log: OwnedFd) -> Result<Started, MachineError> {
        let host = |action| move |source| MachineError::Host { action, source };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SUPERVISOR).arg("burrow-machine");
        let none = OsStr::new("");
        command.arg(if plan.temporary { plan.directory.as_os_str() } else { none });
        command.arg(if tied { "tied" } else { "" });
        for Beside { program, option, value, socket } in &self.beside {
            command.arg(program).arg(option).arg(value).arg(socket);
        }
        command.arg("--").args(&self.machine);
        let also = log.try_clone().map_err(host("open the machine's log"))?;
        let (stdin, tie) = io::pipe().map_err(host("make a pipe"))?;
        command.stdin(stdin);
        // What the bridge knows is not for a machine, which shows it to all who may read `/proc`.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let (console, stdout) = if self.console_is_stdout {
            let pipe = make_pipe(&plan.console()).map_err(host("make a pipe for the console"))?;
            (Some(pipe.0), pipe.1)
        } else {
            (None, log)
        };
        command.stdout(stdout).stderr(also);
        // A group of its own, so that an interrupt from the terminal of whoever runs the bridge does
        // not end the machines with it.
        command.process_group(0).current_dir("/");
        let child = command.spawn().map_err(host("start a shell for the machine"))?;
        let supervisor = Supervisor::of_child(child).map_err(host("watch the machine"))?;
        plan.note(&supervisor).map_err(host("note the machine's process"))?;
        Ok(Started { supervisor, tie, is_tied: tied, console })
    }
}

/// A pipe with a name, so that a bridge that comes later can read on. The end of the machine reads,
/// too: it is never without a reader, and a write to it fails instead of waiting when nobody has read
/// for long, because a guest must not stand still for that.
fn make_pipe(path: &Path) -> io::Result<(Receiver, OwnedFd)> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut options = OpenOptions::new();
    let end = options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    Ok((pipe::OpenOptions::new().open_receiver(path)?, end.into()))
}

/// Looks for a program on `PATH` and where distributions put what is not for ordinary users.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/libexec", "/usr/lib/qemu", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    std::env::split_paths(&path)
        .chain(more)
        .chain(home)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}
