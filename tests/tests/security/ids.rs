//! The users of a sandbox that root starts: they are the host's only where the kernel cannot do otherwise, and
//! nobody else's as long as anything of the sandbox lives.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid};
use tempfile::TempDir;
use tests::{Burrow, agent_path, children, eventually, have_or_skip, skip};

/// What the map of a sandbox with the host's users ends with: all ids.
const ALL_IDS: &str = "4294967295";

/// Whether sandboxes have users of their own here.
fn are_mapped() -> bool {
    if !Uid::effective().is_root() {
        skip("only root's sandboxes have ids of their own");
        return false;
    }
    if Burrow::new().ok(&["run", "--", "cat", "/proc/self/uid_map"]).contains(ALL_IDS) {
        skip("this host's root cannot be mapped, and sandboxes have a warning");
        return false;
    }
    true
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The call that maps the owners of a mount, and the one that puts it at its place: number, and which argument
/// has which bit where the agent makes it for that.
const MAP_OWNERS: (i64, u32, u32) = (libc::SYS_mount_setattr, 2, libc::AT_EMPTY_PATH as u32);
const ATTACH: (i64, u32, u32) = (libc::SYS_move_mount, 4, 4);

/// An agent of which the kernel answers some calls with an error.
struct Failing {
    burrow: Burrow,
    place: TempDir,
}

impl Failing {
    fn agent(&self, (number, argument, bit): (i64, u32, u32), errno: i32) -> PathBuf {
        let script = format!(
            "#!/usr/bin/env python3\n\
             import ctypes, os, struct, sys\n\
             step = lambda *fields: struct.pack('HBBI', *fields)\n\
             # Load the number, load the argument, test the bit, answer; or allow.\n\
             steps = (step(0x20, 0, 0, 0) + step(0x15, 0, 3, {number}) + step(0x20, 0, 0, 16 + 8 * {argument})\n    \
               + step(0x45, 0, 1, {bit}) + step(6, 0, 0, 0x50000 | {errno}) + step(6, 0, 0, 0x7fff0000))\n\
             code = ctypes.create_string_buffer(steps)\n\
             program = struct.pack('HxxxxxxP', 6, ctypes.addressof(code))\n\
             assert ctypes.CDLL(None).prctl(22, 2, ctypes.create_string_buffer(program)) == 0\n\
             os.execv('{agent}', sys.argv)\n",
            agent = agent_path().display(),
        );
        let path = self.place.path().join("guest-agent");
        fs::write(&path, script).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path
    }

    fn run(&self, call: (i64, u32, u32), errno: i32, script: &str) -> Output {
        let mut command = self.burrow.command(&["run", "--", "sh", "-c", script]);
        // Such a host is meant here, also on one where that is refused.
        command.env("BURROW_PROCESS_USER_NAMESPACES", "auto");
        command.env("BURROW_AGENT", self.agent(call, errno)).output().expect("it runs")
    }
}

fn failing() -> Option<Failing> {
    if !are_mapped() || !have_or_skip("python3") {
        return None;
    }
    let place = TempDir::with_prefix("burrow-").expect("a directory");
    Some(Failing { burrow: Burrow::new(), place })
}

#[test]
fn what_fails_for_a_moment_never_makes_root_of_a_sandbox_the_hosts() {
    let Some(failing) = failing() else { return };
    for (call, words) in
        [(MAP_OWNERS, "mapping the owners"), (ATTACH, "an overlay over mapped owners")]
    {
        for errno in [libc::ENOMEM, libc::EMFILE, libc::EIO, libc::ENOSPC] {
            let output = failing.run(call, errno, "cat /proc/self/uid_map");
            assert!(!output.status.success(), "{errno}: {}", text_of(&output));
            assert!(text_of(&output).contains(words), "{errno}: {}", text_of(&output));
        }
    }
}

#[test]
fn what_the_kernel_cannot_do_leaves_the_hosts_users_and_nothing_of_others() {
    let Some(failing) = failing() else { return };
    let look = "cat /proc/self/uid_map; stat -c %u:%g / /run /tmp /dev/shm /sandbox; touch /x; stat -c %u /x";
    for call in [MAP_OWNERS, ATTACH] {
        for errno in [libc::EPERM, libc::EINVAL, libc::ENOSYS] {
            let output = failing.run(call, errno, look);
            assert!(output.status.success(), "{errno}: {}", text_of(&output));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines[0].ends_with(ALL_IDS), "{errno}: {text}");
            assert_eq!(lines[1..], ["0:0", "0:0", "0:0", "0:0", "0:0", "0"], "{errno}");
            assert!(
                text_of(&output).contains("root of the sandbox is root of the host"),
                "{errno}"
            );
        }
    }
}

#[test]
fn an_agent_that_cannot_be_copied_is_no_file_that_a_sandbox_may_change() {
    if !are_mapped() || !have_or_skip("unshare") {
        return;
    }
    let burrow = Burrow::new();
    let run = |users: &str| {
        let own = burrow.command(&["run", "--", "cat", "/proc/self/uid_map"]);
        // The switch is one of a namespace of processes.
        let script = "echo 2 > /proc/sys/vm/memfd_noexec || exit 77; \"$@\"";
        let mut inside = Command::new("unshare");
        inside.args(["-p", "-f", "--mount-proc", "sh", "-c", script, "sh"]);
        inside.arg(own.get_program()).args(own.get_args());
        inside.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.env("BURROW_PROCESS_USER_NAMESPACES", users).output().expect("it runs")
    };
    let [mapped, host] = ["auto", "off"].map(run);
    if mapped.status.code() == Some(77) {
        return skip("this kernel has no vm.memfd_noexec");
    }
    assert!(mapped.status.success() && !text_of(&mapped).contains(ALL_IDS), "{}", text_of(&mapped));
    assert!(
        !host.status.success() && text_of(&host).contains("vm.memfd_noexec"),
        "{}",
        text_of(&host)
    );
}

/// A group of version 1 in which nothing moves, not even to its end.
struct Frozen(PathBuf);

impl Frozen {
    fn make(processes: &[Pid]) -> Option<Self> {
        let group =
            Path::new("/sys/fs/cgroup/freezer").join(format!("test-{}", std::process::id()));
        if !group.parent().expect("it has one").join("cgroup.procs").exists() {
            skip("this host has no freezer of version 1, in which a killed process waits");
            return None;
        }
        fs::create_dir(&group).expect("a group");
        let frozen = Self(group);
        for process in processes {
            fs::write(frozen.0.join("cgroup.procs"), process.to_string()).expect("it moves");
        }
        frozen.set("FROZEN");
        eventually("it is frozen", || frozen.state() == "FROZEN");
        Some(frozen)
    }

    fn set(&self, state: &str) {
        fs::write(self.0.join("freezer.state"), state).expect("a state");
    }

    fn state(&self) -> String {
        fs::read_to_string(self.0.join("freezer.state")).expect("a state").trim().to_owned()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.set("THAWED");
        eventually("the group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The one range of these tests, which no other test takes.
const ONE_RANGE: [(&str, &str); 2] =
    [("BURROW_PROCESS_ID_RANGES", "1"), ("BURROW_PROCESS_IDS_FIRST", "1945239552")];

/// Processes that have become this one's count for their range until they are waited for.
#[allow(clippy::disallowed_methods, reason = "they have become this process's")]
fn collect_orphans() {
    let any = Pid::from_raw(-1);
    while matches!(waitpid(any, Some(WaitPidFlag::WNOHANG)), Ok(ended) if ended != WaitStatus::StillAlive)
    {
    }
}

/// Kills the supervisor of a sandbox of which something cannot end yet: the program, or the first process too.
fn assert_its_ids_stay_its_own(burrow: &Burrow, first_too: bool) {
    let mut bridge = burrow.command(&["run", "--", "sh", "-c", "echo up; exec sleep 1000"]);
    let mut bridge = bridge.envs(ONE_RANGE).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = bridge.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it says so");
    assert_eq!(line, "up\n");
    let child = |of: Pid| *children(of).first().expect("it has one");
    let supervisor = child(Pid::from_raw(bridge.id() as i32));
    let first = child(supervisor);
    let program = child(first);
    let held = if first_too { vec![first, program] } else { vec![program] };
    let Some(frozen) = Frozen::make(&held) else {
        bridge.kill().expect("it is ours");
        bridge.wait().expect("it ends");
        return;
    };
    kill(supervisor, Signal::SIGKILL).expect("it is ours");
    bridge.wait().expect("it ends with its sandbox");
    let next = || {
        let mut next = burrow.command(&["run", "--", "true"]);
        next.envs(ONE_RANGE).output().expect("it runs")
    };
    let refused = next();
    assert!(
        !refused.status.success() && text_of(&refused).contains("raise `id_ranges`"),
        "{first_too}: another sandbox has the ids of one that lives: {}",
        text_of(&refused)
    );
    drop(frozen);
    eventually("the range is free when all are gone", || {
        collect_orphans();
        next().status.success()
    });
}

#[test]
fn ids_are_reused_only_after_the_last_process_of_a_killed_sandbox_is_gone() {
    if !are_mapped() {
        return;
    }
    // What is left of a killed sandbox becomes ours, and is not left to how this host's init collects.
    set_child_subreaper(true).expect("anybody may");
    let burrow = Burrow::new();
    assert_its_ids_stay_its_own(&burrow, false);
    assert_its_ids_stay_its_own(&burrow, true);
}
