//! The programs that make up a machine, and the shell that supervises them: when the machine's own
//! process ends, those beside it end too, even if the bridge is gone.

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

/// The relay's name in distributions and in its own installer.
pub const RELAY: &str = "vhost-device-vsock";

/// The program that shares a directory of the host with a machine.
pub const SHARER: &str = "virtiofsd";

/// Helpers of a machine, which does not outlive them, and the reason that is reported when one
/// ends.
pub const BESIDE: [(&str, &str); 2] = [
    (RELAY, "the relay of its vsock has ended"),
    (SHARER, "virtiofsd has ended, by which it had its workspace"),
];

/// The processes of a machine. The helpers start first, and the machine when their sockets exist.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    pub beside: Vec<Beside>,
    pub machine: Vec<OsString>,
    /// The socket of a virtio-serial port, at which an agent without a vsock is called.
    pub serial: Option<PathBuf>,
    /// The machine's console is its stdout, and not a socket that it offers.
    pub console_is_stdout: bool,
    /// What was requested and this kind of machine does not enforce, as messages.
    pub warnings: Vec<String>,
}

/// A program that implements a device of the monitor: between its vsock and our socket, or between its files
/// and the host's.
#[derive(Clone, Debug)]
pub struct Beside {
    pub program: PathBuf,
    /// Its one option or verb, and the value.
    pub option: &'static str,
    pub value: OsString,
    /// The socket that it makes for the monitor.
    pub socket: PathBuf,
}

/// The supervisor. Its arguments: a directory to remove at the end, whether the machine is tied to us, for
/// each helper the option, the value and the socket, and after a `--` the machine's own command.
///
/// It starts nothing before the bridge writes a line, after it has noted the supervisor on disk: a bridge
/// that is cut off before that leaves nothing.
///
/// A tied machine ends when our end of the shell's stdin closes, which the kernel does even if the bridge is
/// killed. It is killed then, not asked to end: nobody is left to read an answer.
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

/// A started supervisor, and what ties it to us, if anything.
pub struct Started {
    pub supervisor: Supervisor,
    /// Its stdin. Closing it ends a tied machine.
    tie: PipeWriter,
    is_tied: bool,
    /// The console, if it is the machine's stdout.
    pub console: Option<Receiver>,
}

impl Started {
    /// Lets it start the machine. Returns what ties the machine to us.
    pub fn go(self) -> io::Result<Option<PipeWriter>> {
        let mut tie = self.tie;
        tie.write_all(b"go\n")?;
        Ok(self.is_tied.then_some(tie))
    }
}

/// How the machine's own process ended, which the shell reports by its own exit code.
pub fn from_shell(exit: MachineExit) -> MachineExit {
    match exit {
        MachineExit::Exited { code: code @ 129..=192 } => {
            MachineExit::Signaled { signal: code - 128 }
        }
        exit => exit,
    }
}

/// Resolves when a process of this name that the supervisor started is gone. If there is none, it resolves at
/// once if there should be one, and never otherwise.
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

/// Whether the machine's process exists: a child of the supervisor that is neither a helper nor the
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
    /// Starts the programs. `log` receives their own messages.
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
        // The bridge's environment is not for a machine, which shows its own to all who may read
        // `/proc`.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let (console, stdout) = if self.console_is_stdout {
            let pipe = make_pipe(&plan.console()).map_err(host("make a pipe for the console"))?;
            (Some(pipe.0), pipe.1)
        } else {
            (None, log)
        };
        command.stdout(stdout).stderr(also);
        // A group of its own, so that an interrupt from the bridge's terminal does not end the machines with
        // it. Paths in a monitor's snapshots may be relative to the machine's own directory.
        command.process_group(0).current_dir(&plan.directory);
        let child = command.spawn().map_err(host("start a shell for the machine"))?;
        let supervisor = Supervisor::of_child(child).map_err(host("watch the machine"))?;
        plan.note(&supervisor).map_err(host("note the machine's process"))?;
        Ok(Started { supervisor, tie, is_tied: tied, console })
    }
}

/// Makes a named pipe, so that a later bridge can continue to read. The machine's end is open for reading,
/// too: so the pipe always has a reader, and a write fails instead of blocking when nobody reads, because a
/// guest must not stop for that.
fn make_pipe(path: &Path) -> io::Result<(Receiver, OwnedFd)> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut options = OpenOptions::new();
    let end = options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    Ok((pipe::OpenOptions::new().open_receiver(path)?, end.into()))
}

/// Looks for a program on `PATH` and in the directories for programs that are not for ordinary
/// users.
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
