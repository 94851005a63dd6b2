//! Real programs, started and collected. One test runs at a time, because the reaper takes every
//! child of the process.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tokio::sync::oneshot;

use super::tree::Tree;
use super::*;
use crate::cgroup::{CgroupSupport, GroupLimits, Groups, OlderGroups};
use crate::pid1::reaper::{Exit, Reaper, Remaining, Starting, Status};

const DEADLINE: Duration = Duration::from_secs(20);

/// A program that runs, or has run already.
pub struct Started {
    pub child: Child,
    pub exit: oneshot::Receiver<Exit>,
}

pub struct Child {
    pub pid: Pid,
    pub stdio: Stdio,
}

/// One test's reaper, and the right to have children.
pub struct World {
    pub reaper: Reaper,
    _alone: MutexGuard<'static, ()>,
}

impl World {
    pub fn new() -> Self {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Self { reaper: Reaper::new().unwrap(), _alone: alone }
    }

    pub fn start(&self, command: Command<'_>) -> Started {
        self.try_start(command).expect("the program starts")
    }

    fn try_start(&self, command: Command<'_>) -> Result<Started, SpawnFailure> {
        let (prepared, stdio) = prepare(command)?;
        let Starting { exit, outcome, .. } = self.reaper.spawn(prepared);
        Ok(Started { child: Child { pid: outcome.wait()?, stdio }, exit })
    }

    pub fn until<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.reaper.reap();
            if let Some(value) = found() {
                return value;
            }
            assert!(begun.elapsed() < DEADLINE, "{what} within {DEADLINE:?}");
            std::thread::yield_now();
        }
    }

    fn end(&self, started: &mut Started) -> Exit {
        self.until("the program ends", || started.exit.try_recv().ok())
    }

    /// Runs to the end and returns stdout.
    fn output(&self, command: Command<'_>) -> (Status, String) {
        let mut started = self.start(command);
        let exit = self.end(&mut started);
        (exit.status, read_all(&started.child.stdio))
    }

    fn refusal(&self, command: Command<'_>) -> SpawnFailure {
        let Err(failure) = self.try_start(command) else { panic!("the start is refused") };
        failure
    }

    fn no_children_left(&self) {
        self.until("every child is collected", || {
            (self.reaper.reap() == Remaining::None).then_some(())
        });
    }
}

fn command<'a>(argv: &[&str]) -> Command<'a> {
    Command {
        session: "test",
        argv: argv.iter().map(|argument| Text::from(*argument)).collect(),
        env: vec![],
        cwd: None,
        user: None,
        stdio: StdioPlan::Pipes { stdin: false },
        control: None,
        group: None,
    }
}

pub fn shell<'a>(script: &str) -> Command<'a> {
    command(&["/bin/sh", "-c", script])
}

fn read_all(stdio: &Stdio) -> String {
    let Stdio::Pipes { stdout, .. } = stdio else { panic!("pipes") };
    let mut text = Vec::new();
    // The pipe does not block: a pipe that survivors hold open ends in EAGAIN instead of end of
    // file.
    File::from(stdout.try_clone().unwrap()).read_to_end(&mut text).ok();
    String::from_utf8(text).unwrap()
}

fn groups() -> Option<Groups> {
    match CgroupSupport::discover(None, OlderGroups::default()).groups {
        Ok(groups) => Some(groups),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

#[test]
fn every_exit_code_is_reported() {
    let world = World::new();
    for code in 0..=255 {
        let (status, _) = world.output(shell(&format!("exit {code}")));
        assert_eq!(status, Status::Exited { code });
    }
}

#[test]
fn every_terminating_signal_is_reported() {
    let world = World::new();
    let harmless = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGURG, Signal::SIGWINCH];
    let stopping = [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
    for signal in Signal::iterator().filter(|s| !harmless.contains(s) && !stopping.contains(s)) {
        // The program must still receive the signals that the agent ignores or blocks.
        let mut started = world.start(command(&["sleep", "1000"]));
        assert!(world.reaper.signal(started.child.pid, signal));
        match world.end(&mut started).status {
            Status::Signaled { signal: found, .. } => assert_eq!(found, signal as i32),
            status @ Status::Exited { .. } => panic!("{signal}: {status:?}"),
        }
        assert!(!world.reaper.signal(started.child.pid, signal), "a dead one is not signalled");
    }
}

#[test]
fn unexecutable_programs_are_refused_with_a_reason() {
    let world = World::new();
    let directory = std::env::temp_dir().join(format!("burrow-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let check = |argv: &[&str], errno: i32, code: i32| {
        let failure = world.refusal(command(argv));
        assert_eq!((failure.stage, failure.errno), (SpawnStage::Exec, errno), "{failure:?}");
        assert_eq!(failure.shell_code(), code);
        failure.subject
    };
    assert_eq!(check(&["no-such-program-1"], libc::ENOENT, 127), "no-such-program-1");
    check(&["/no/such/path"], libc::ENOENT, 127);
    check(&["/etc/passwd/x"], libc::ENOENT, 127);
    check(&[""], libc::ENOENT, 127);
    check(&[&file("plain", "echo", 0o644)], libc::EACCES, 126);
    check(&["/"], libc::EACCES, 126);
    check(&[&file("script", "echo no interpreter line", 0o755)], libc::ENOEXEC, 126);
    let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
    assert!(check(&[&orphan], libc::ENOENT, 127).contains("interpreter"));
    check(&["a\0b"], libc::EINVAL, 126);

    let mut later = command(&["plain"]);
    later.env = vec![("PATH".into(), format!("{}:/bin", directory.display()).into())];
    assert_eq!(world.refusal(later).errno, libc::EACCES, "remembered over the later ENOENT");
    std::fs::remove_dir_all(&directory).unwrap();
    world.no_children_left();
}

#[test]
fn bad_directories_and_users_are_refused_at_their_stage() {
    let world = World::new();
    let with = |cwd: Option<&str>, user: Option<&str>| {
        let mut command = command(&["true"]);
        command.cwd = cwd.map(Text::from);
        command.user = user.map(str::to_owned);
        let failure = world.refusal(command);
        (failure.stage, failure.errno, failure.subject)
    };
    let directory = |text: &str, errno| (SpawnStage::WorkingDirectory, errno, text.to_owned());
    assert_eq!(with(Some("/no/such"), None), directory("/no/such", libc::ENOENT));
    assert_eq!(with(Some("/etc/passwd"), None), directory("/etc/passwd", libc::ENOTDIR));
    let user = |text: &str, errno| (SpawnStage::User, errno, text.to_owned());
    assert_eq!(with(None, Some("no-such-user")), user("no-such-user", libc::ENOENT));
    assert_eq!(with(None, Some("root:no-group")), user("root:no-group", libc::ENOENT));
    assert_eq!(with(None, Some(":")), user(":", libc::EINVAL));
    if geteuid().is_root() {
        // The directory is entered as the user.
        let (stage, errno, _) = with(Some("/root"), Some("65534:65534"));
        assert_eq!((stage, errno), (SpawnStage::WorkingDirectory, libc::EACCES));
    }
}

#[test]
fn a_program_finds_its_surroundings() {
    let world = World::new();
    let mut command = shell(
        "pwd; umask; ulimit -Sn; echo $A $HOME $BURROW_SESSION; ls -l /proc/self/fd | grep -c ' -> '; ps -o sid= -p $$ >/dev/null; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status",
    );
    command.cwd = Some("/usr".into());
    command.env = vec![("A".into(), "b c".into())];
    let (status, text) = world.output(command);
    assert_eq!(status, Status::Exited { code: 0 });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["/usr", "0022"]);
    assert!(lines[2].parse::<u64>().unwrap() <= OPEN_FILES_SOFT);
    assert!(lines[3].starts_with("b c /"), "{text}");
    assert!(lines[3].ends_with(" test"), "{text}");
    assert_eq!(lines[4], "4", "0, 1, 2 and the directory that ls reads");
    assert!(lines[5].ends_with("0000000000000000"), "nothing blocked: {text}");
    assert!(lines[6].ends_with("0000000000000000"), "nothing ignored: {text}");
}

#[test]
fn a_program_runs_as_its_user() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root can become others");
    }
    let world = World::new();
    let mut command = shell("id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; echo $USER");
    command.user = Some("12345:23456".into());
    let (_, text) = world.output(command);
    assert_eq!(text, "12345\n23456\n23456\nNoNewPrivs:\t0\n12345\n");
}

#[test]
fn stdin_is_a_pipe_or_empty() {
    let world = World::new();
    assert_eq!(world.output(command(&["cat"])), (Status::Exited { code: 0 }, String::new()));
    let mut command = command(&["cat"]);
    command.stdio = StdioPlan::Pipes { stdin: true };
    let mut started = world.start(command);
    let Stdio::Pipes { stdin, .. } = &mut started.child.stdio else { panic!("pipes") };
    File::from(stdin.take().unwrap()).write_all(b"hello").unwrap();
    assert_eq!(world.end(&mut started).status, Status::Exited { code: 0 });
    assert_eq!(read_all(&started.child.stdio), "hello");
}

#[test]
fn a_terminal_is_the_sessions_own() {
    let world = World::new();
    let mut command = shell("tty >/dev/null && stty size </dev/tty; exec cat >/dev/null");
    command.stdio = StdioPlan::Pty { rows: 12, cols: 34 };
    let mut started = world.start(command);
    let Stdio::Pty { controller } = &started.child.stdio else { panic!("a terminal") };
    let controller = controller.try_clone().unwrap();
    let mut file = File::from(controller.try_clone().unwrap());
    let mut seen = Vec::new();
    world.until("the size is written", || {
        let mut buffer = [0; 100];
        let count = file.read(&mut buffer).unwrap_or(0);
        seen.extend_from_slice(&buffer[..count]);
        seen.starts_with(b"12 34\r\n").then_some(())
    });
    assert_eq!(sys::pty::size(controller.as_fd()).unwrap(), (12, 34));
    sys::pty::resize(controller.as_fd(), 50, 100).unwrap();
    assert_eq!(sys::pty::size(controller.as_fd()).unwrap(), (50, 100));
    assert_eq!(sys::pty::foreground_group(controller.as_fd()).unwrap(), started.child.pid);
    let end = sys::pty::end_of_input(controller.as_fd()).unwrap().unwrap();
    assert_eq!(end, 4);
    file.write_all(&[end]).unwrap();
    assert_eq!(world.end(&mut started).status, Status::Exited { code: 0 });
}

#[test]
fn the_control_channel_is_descriptor_3() {
    let world = World::new();
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let mut command = shell("echo framed >&3");
    command.control = Some(write);
    assert_eq!(world.output(command).0, Status::Exited { code: 0 });
    let mut text = String::new();
    File::from(read).read_to_string(&mut text).unwrap();
    assert_eq!(text, "framed\n");
}

#[test]
fn two_thousand_rapid_starts_leave_no_zombie() {
    let world = World::new();
    // Held from the agent's start on.
    sys::lookup::proc();
    // And the empty device from the first program on.
    world.output(command(&["/bin/true"]));
    let before = open_descriptors();
    for _ in 0..20 {
        let mut batch: Vec<Started> =
            (0..100).map(|_| world.start(command(&["/bin/true"]))).collect();
        for started in &mut batch {
            assert_eq!(world.end(started).status, Status::Exited { code: 0 });
        }
    }
    world.no_children_left();
    assert_eq!(world.reaper.counts().started, 2001);
    assert_eq!(world.reaper.counts().reaped, 2001);
    assert_eq!(open_descriptors(), before, "no descriptor leaks");
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Leaves the leader's session by a double fork and `setsid`, ignores TERM, and has its own child.
const ESCAPES: &str = "(setsid sh -c 'trap \"\" TERM; sleep 1000 & wait; sleep 1000' &) & \
                       (setsid setsid sleep 1000 &); echo ready; exec sleep 1000";

fn escapees_are_killed(group: Option<&SessionGroup>) {
    let world = World::new();
    let mut command = shell(ESCAPES);
    command.session = "escape";
    command.group = group;
    let mut started = world.start(command);
    let leader = started.child.pid;
    let tree = Tree { session: "escape", leader, leader_reaped: false, group };
    // The leader, sh, its sleep, and the other sleep; shells in between come and go.
    world.until("everything runs", || {
        let members = tree.members();
        let sleeping = members.listed.iter().filter(|m| m.command == "sleep 1000").count();
        (sleeping == 3 && members.count == 4).then_some(())
    });
    kill(leader, Signal::SIGKILL).unwrap();
    world.end(&mut started);
    let tree = Tree { leader_reaped: true, ..tree };
    let members = tree.members();
    assert_eq!(members.count, 3, "left behind: {members:?}");
    assert!(tree.kill() >= 3);
    world.until("nothing is left", || tree.is_gone().then_some(()));
    assert_eq!(tree.members().count, 0);
    world.no_children_left();
}

#[test]
fn escapees_are_killed_with_a_control_group() {
    if let Some(mut groups) = groups() {
        let group = groups.take(&GroupLimits::default()).unwrap();
        escapees_are_killed(Some(&group));
        groups.retire(group);
        assert_eq!(groups.sweep(), 0);
    }
}

#[test]
fn escapees_are_killed_without_a_control_group() {
    escapees_are_killed(None);
}

#[test]
fn a_signal_reaches_everyone_in_the_group() {
    let Some(mut groups) = groups() else { return };
    let group = groups.take(&GroupLimits::default()).unwrap();
    let world = World::new();
    let mut command = shell("setsid sleep 1000 & exec sleep 1000");
    command.group = Some(&group);
    let mut started = world.start(command);
    let leader = started.child.pid;
    assert!(group.pids().unwrap().contains(&leader), "born in the group");
    let tree = Tree { session: "test", leader, leader_reaped: false, group: Some(&group) };
    world.until("both run", || (tree.members().count == 2).then_some(()));
    tree.signal(Signal::SIGTERM);
    let status = world.end(&mut started).status;
    assert_eq!(status, Status::Signaled { signal: libc::SIGTERM, core_dumped: false });
    world.until("the group is empty", || tree.is_gone().then_some(()));
    groups.retire(group);
    assert_eq!(groups.sweep(), 0);
}

#[test]
fn groups_are_removed_once_they_are_empty() {
    let Some(mut groups) = groups() else { return };
    let world = World::new();
    let group = groups.take(&GroupLimits::default()).unwrap();
    let name = group.name().to_owned();
    let mut command = command(&["sleep", "1000"]);
    command.group = Some(&group);
    let mut started = world.start(command);
    assert!(group.is_populated());
    groups.retire(group);
    assert_eq!(groups.sweep(), 1, "it is in use");
    assert!(world.reaper.signal(started.child.pid, Signal::SIGKILL));
    world.end(&mut started);
    world.until("the group can be removed", || (groups.sweep() == 0).then_some(()));
    groups.refill();
    let next = groups.take(&GroupLimits::default()).unwrap();
    assert_ne!(next.name(), name);
    groups.retire(next);
}

#[test]
fn descriptors_of_the_agent_are_not_inherited() {
    let world = World::new();
    // As a careless parent could have passed it to us.
    let leaked = File::open("/etc/passwd").unwrap();
    nix::fcntl::fcntl(&leaked, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let script = format!("test -e /proc/self/fd/{} && echo leaked", leaked.as_raw_fd());
    assert_eq!(world.output(shell(&script)).1, "");
}
