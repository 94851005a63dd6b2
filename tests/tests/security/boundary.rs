//! The process machine's boundary: users, namespaces, mounts, devices, keyrings, the agent itself, and how
//! many processes there may be.
//!
//! Each test is something that code in a sandbox, or the owner of a key for one, can do. When the tests run
//! as root, each runs once more as an ordinary user.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use tempfile::TempDir;
use tests::{
    Burrow, agent_path, bridge_path, children, eventually, have_or_skip, is_v2_machine, skip,
};

use crate::ordinary;

/// The first id of the host that may be a sandbox's by default, and how many belong to one.
const IDS_FIRST: u64 = 0x7000_0000;
const IDS: u64 = 65_536;

/// Runs a script in a sandbox and returns what it printed.
fn inside(burrow: &Burrow, script: &str) -> String {
    inside_with(burrow, &[], script)
}

/// The same with a configuration by the environment.
fn inside_with(burrow: &Burrow, variables: &[(&str, &str)], script: &str) -> String {
    let mut command = burrow.command(&["run", "--", "sh", "-c", script]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Each command is refused; all of them are tried in one sandbox.
fn refused(burrow: &Burrow, variables: &[(&str, &str)], commands: &[&str]) {
    let mut script = String::new();
    for (number, command) in commands.iter().enumerate() {
        writeln!(script, "if ( {command} ) 2>&1; then echo DONE; fi; echo TRIED-{number}")
            .expect("a string");
    }
    let output = inside_with(burrow, variables, &script);
    let mut rest = output.as_str();
    for (number, command) in commands.iter().enumerate() {
        let tried = rest.split_once(&format!("TRIED-{number}\n"));
        let (answer, others) = tried.unwrap_or_else(|| panic!("{command} was not tried: {output}"));
        assert!(!answer.contains("DONE"), "{command} was done: {answer}");
        assert!(!answer.contains("not found"), "{command} was not tried: {answer}");
        rest = others;
    }
}

/// Nothing of ids can be shown where the kernel maps no owners. The machine of `tests/v2/run` can.
fn skip_unmapped() {
    assert!(!is_v2_machine(), "the owners of this machine's root cannot be mapped");
    skip("this host's root cannot be mapped, and sandboxes have a warning");
}

#[test]
fn root_of_a_sandbox_is_nobody_on_the_host() {
    let burrow = Burrow::new();
    if !Uid::effective().is_root() {
        let map = inside(&burrow, "cat /proc/self/uid_map");
        let fields: Vec<&str> = map.split_whitespace().collect();
        assert_eq!(fields, ["0", &Uid::effective().to_string(), "1"]);
        return;
    }
    if inside(&burrow, "cat /proc/self/uid_map").contains("4294967295") {
        return skip_unmapped();
    }
    let map = |burrow: &Burrow| {
        let map = inside(burrow, "cat /proc/self/uid_map /proc/self/gid_map; id -u");
        let fields: Vec<u64> = map.split_whitespace().map(|field| field.parse().unwrap()).collect();
        let [0, users, IDS, 0, groups, IDS, 0] = fields[..] else { panic!("{map}") };
        assert_eq!(users, groups);
        assert!(users >= IDS_FIRST && (users - IDS_FIRST).is_multiple_of(IDS), "{users}");
        users
    };
    map(&burrow);
    let mut server = Burrow::new();
    server.serve();
    let of = |name: &str| {
        server.ok(&["start", "--name", name]);
        server.ok(&["exec", name, "--", "cat", "/proc/self/uid_map"])
    };
    assert_ne!(of("one"), of("two"), "two sandboxes have the same users");
}

#[test]
fn root_owns_the_image_s_files_and_what_it_makes() {
    let burrow = Burrow::new();
    let output = inside(
        &burrow,
        "stat -c %u:%a /usr /etc /tmp /dev/shm /run && touch /usr/x /etc/x /x && chmod 600 /usr/x && \
         stat -c %u /usr/x /x",
    );
    assert_eq!(output, "0:755\n0:755\n0:1777\n0:1777\n0:755\n0\n0\n");
}

#[test]
fn root_of_a_sandbox_is_nobody_to_an_ordinary_user_either() {
    ordinary::again("boundary::root_of_a_sandbox_is_nobody_on_the_host");
}

#[test]
fn no_namespace_and_no_mount_can_be_made() {
    let burrow = Burrow::new();
    refused(
        &burrow,
        &[],
        &[
            "unshare -Urm true",
            "unshare -U true",
            "unshare -m true",
            "unshare -n true",
            "unshare -p -f true",
            "unshare -C true",
            "nsenter -t 1 -m true",
            "mount -t tmpfs x /mnt",
            "mount -t proc x /mnt",
            "mount -t cgroup -o memory x /mnt",
            "mount -t cgroup2 x /mnt",
            "mount --bind / /mnt",
            "mount -o remount,rw /sys",
            "mount -o remount,rw /sys/fs/cgroup",
            "umount /proc/sys",
            "umount -l /etc/shadow",
            "pivot_root / /mnt",
            "echo 100 > /proc/sys/user/max_user_namespaces",
            "mkdir /sys/fs/cgroup/own",
        ],
    );
}

#[test]
fn no_namespace_and_no_mount_can_be_made_by_an_ordinary_user_either() {
    ordinary::again("boundary::no_namespace_and_no_mount_can_be_made");
}

#[test]
fn no_namespace_and_no_mount_can_be_made_where_root_is_the_host_s() {
    if !Uid::effective().is_root() {
        return skip("an ordinary user's sandbox is never root of the host");
    }
    let burrow = Burrow::new();
    let off = [("BURROW_PROCESS_USER_NAMESPACES", "off")];
    let map = inside_with(&burrow, &off, "cat /proc/self/uid_map");
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "0", "4294967295"]);
    refused(
        &burrow,
        &off,
        &["unshare -Urm true", "unshare -m true", "mount -t tmpfs x /mnt", "umount /proc/sys"],
    );
}

/// What is done to devices in a sandbox reaches none of the host's.
fn assert_devices_are_its_own(burrow: &Burrow, variables: &[(&str, &str)]) {
    let of_the_host = || {
        ["/dev/null", "/dev/zero"].map(|path| {
            let found = fs::metadata(path).unwrap();
            (found.permissions().mode(), found.uid())
        })
    };
    let before = of_the_host();
    let change = "chown 7 /dev/zero; chmod 600 /dev/null && stat -c %a /dev/null || echo refused";
    let output = inside_with(burrow, variables, change);
    // An ordinary user may not change what the host's root has made for all.
    assert!(["600\n", "refused\n"].contains(&output.as_str()), "{output}");
    assert_eq!(of_the_host(), before);
    let look = "head -c 3 /dev/zero | wc -c; echo x > /dev/null; stat -c %a /dev/null";
    assert_eq!(inside_with(burrow, variables, look), "3\n666\n");
    refused(
        burrow,
        variables,
        &["mknod /tmp/d b 254 0 && head -c 1 /tmp/d", "mknod /dev/m c 1 1 && cat /dev/m"],
    );
}

#[test]
fn devices_are_the_sandbox_s_own() {
    assert_devices_are_its_own(&Burrow::new(), &[]);
}

#[test]
fn devices_are_its_own_where_root_is_the_host_s() {
    if !Uid::effective().is_root() {
        return skip("an ordinary user's sandbox is never root of the host");
    }
    assert_devices_are_its_own(&Burrow::new(), &[("BURROW_PROCESS_USER_NAMESPACES", "off")]);
}

#[test]
fn devices_are_not_an_ordinary_user_s_to_change_either() {
    ordinary::again("boundary::devices_are_the_sandbox_s_own");
}

#[test]
fn nobody_comes_to_the_agent_or_to_its_file() {
    let burrow = Burrow::new();
    let file = || {
        let found = fs::metadata(agent_path()).unwrap();
        (found.permissions().mode(), found.len())
    };
    let before = file();
    refused(
        &burrow,
        &[],
        &[
            "cat /proc/1/maps",
            "head -c 1 /proc/1/mem",
            "readlink /proc/1/fd/0 /proc/1/fd/3 /proc/1/fd/4 /proc/1/fd/5 | grep .",
            "readlink /proc/1/exe",
            "/proc/1/exe --version",
            "chmod 4777 /proc/1/exe",
            "cp /proc/1/exe /tmp/agent",
            "cat /proc/1/environ",
            "ls /proc/1/root/ | grep .",
            "ls /proc/1/cwd/ | grep .",
        ],
    );
    assert_eq!(file(), before);
    let mut server = Burrow::new();
    server.serve();
    server.ok(&["start", "--name", "w"]);
    let ran = server.run(&["exec", "w", "--", "/proc/self/exe", "--version"]);
    assert!(!ran.status.success(), "the agent was executed as a program");
}

#[test]
fn nobody_comes_to_an_ordinary_user_s_agent_either() {
    ordinary::again("boundary::nobody_comes_to_the_agent_or_to_its_file");
}

/// Calls the kernel by number and prints what it says.
const CALL: &str = "
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = [int(n) for n in sys.argv[1].split(',')]
for n in numbers:
    ctypes.set_errno(0)
    result = libc.syscall(n, 0, 0, 0, 0, 0)
    print(n, result, ctypes.get_errno())
";

#[test]
fn keyrings_of_the_host_are_not_there() {
    if !have_or_skip("python3") {
        return;
    }
    let burrow = Burrow::new();
    // add_key, request_key, keyctl
    let output = burrow.ok(&["run", "--", "python3", "-c", CALL, "248,249,250"]);
    for line in output.lines() {
        assert!(line.ends_with(" -1 1"), "{line}: it is no EPERM");
    }
    assert_eq!(inside(&burrow, "cat /proc/keys /proc/key-users; true"), "");
}

/// Forks until that is refused, in a sandbox of at most 64 processes, and returns how often it was not.
fn bombed(burrow: &Burrow) -> u64 {
    // The shell ends where it cannot start one more, so it counts as it goes.
    let bomb = "n=0; while sleep 1000 & do n=$((n+1)); echo $n; [ $n -lt 500 ] || break; done";
    let output = burrow.run(&["exec", "bomb", "--", "sh", "-c", bomb]);
    let counted = String::from_utf8_lossy(&output.stdout).into_owned();
    counted.lines().last().expect("some were begun").parse().unwrap()
}

/// Ends what a fork bomb has begun, in the sandbox itself, and has programs run there again.
fn assert_the_bomb_can_be_ended(burrow: &Burrow) {
    burrow.ok(&["exec", "bomb", "--", "sh", "-c", "kill -KILL -1"]);
    eventually("programs run again", || {
        let output = burrow.run(&["exec", "bomb", "--", "sh", "-c", "echo alive | cat | cat"]);
        output.stdout == b"alive\n"
    });
    burrow.ok(&["rm", "--force", "bomb"]);
}

#[test]
fn keyrings_are_not_there_for_an_ordinary_user_either() {
    ordinary::again("boundary::keyrings_of_the_host_are_not_there");
}

#[test]
fn a_fork_bomb_stops_at_its_bound_and_the_sandbox_answers() {
    let mut burrow = Burrow::new().variable("BURROW_PROCESS_PROCESSES_MAX", "64");
    burrow.serve();
    burrow.ok(&["start", "--name", "bomb"]);
    let begun = bombed(&burrow);
    assert!((16..64).contains(&begun), "{begun} processes were begun");
    assert_the_bomb_can_be_ended(&burrow);
}

#[test]
fn a_fork_bomb_stops_at_its_bound_where_root_is_the_host_s() {
    if !Uid::effective().is_root() {
        return skip("an ordinary user's sandbox is never root of the host");
    }
    let mut burrow = Burrow::new()
        .variable("BURROW_PROCESS_PROCESSES_MAX", "64")
        .variable("BURROW_PROCESS_USER_NAMESPACES", "off");
    burrow.serve();
    let started = burrow.ok(&["start", "--json", "--name", "bomb"]);
    let begun = bombed(&burrow);
    if started.contains("processes_max is not enforced") {
        assert_eq!(begun, 500, "{started}");
        return skip("no control group of this host has the controller, and a warning says so");
    }
    assert!((16..64).contains(&begun), "{begun} processes were begun: {started}");
    assert_the_bomb_can_be_ended(&burrow);
}

#[test]
fn a_fork_bomb_of_an_ordinary_user_stops_at_its_bound_too() {
    ordinary::again("boundary::a_fork_bomb_stops_at_its_bound_and_the_sandbox_answers");
}

#[test]
fn programs_die_before_the_agent_when_memory_runs_out() {
    let burrow = Burrow::new();
    // The agent's score is that of programs while it starts one, which may not be over yet.
    let output = inside(
        &burrow,
        "for try in $(seq 100); do \
           agent=$(cat /proc/1/oom_score_adj); [ $agent -ge 500 ] || break; sleep 0.05; \
         done; \
         cat /proc/self/oom_score_adj; echo $agent; \
         echo -500 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj",
    );
    let scores: Vec<i32> = output.split_whitespace().map(|score| score.parse().unwrap()).collect();
    let [program, agent, lowered] = scores[..] else { panic!("{output}") };
    assert!(program > agent && lowered >= agent, "{output}");
}

#[test]
fn programs_of_an_ordinary_user_die_before_the_agent_too() {
    ordinary::again("boundary::programs_die_before_the_agent_when_memory_runs_out");
}

/// A bridge over a root that is on an overlay, of whose files the kernel maps no owners.
struct Unmapped {
    burrow: Burrow,
    place: TempDir,
}

impl Unmapped {
    fn new() -> Option<Self> {
        if !Uid::effective().is_root() {
            skip("only root's sandboxes have users that are mapped");
            return None;
        }
        if !have_or_skip("unshare") || !have_or_skip("python3") {
            return None;
        }
        let place = TempDir::with_prefix("burrow-").unwrap();
        let unmapped = Self { burrow: Burrow::new(), place };
        let (done, _, output) = unmapped.run("auto", &["true"]);
        if !done && output.contains("cannot be a lower layer") {
            skip("this host's root is an overlay itself, and no more can be put on it");
            return None;
        }
        Some(unmapped)
    }

    /// `run` in a sandbox over that root: the words before the command are its options.
    fn command(&self, users: &str, words: &[&str]) -> Command {
        let script = format!(
            "cd {} && rm -rf u w m && mkdir -p u w m && \
             mount -t overlay -o lowerdir=/usr,upperdir=u,workdir=w x m && \
             mkdir -p m/dev m/proc m/sys m/etc m/lib64 m/closed/inner && chmod 700 m/closed && \
             cp -a /lib64/. m/lib64/ && cp /etc/passwd m/etc/ && ln -sfn . m/usr && \
             exec {} run --image $PWD/m \"$@\"",
            self.place.path().display(),
            bridge_path().display(),
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh"]).args(words);
        command.env("BURROW_AGENT", agent_path()).env("BURROW_PROCESS_USER_NAMESPACES", users);
        command.env("BURROW_RUNTIME_DIR", self.burrow.runtime());
        command.env("BURROW_STATE_DIR", self.burrow.state());
        command
    }

    /// Whether it succeeded, what it printed, and its errors.
    fn run(&self, users: &str, words: &[&str]) -> (bool, String, String) {
        let output = self.command(users, words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn a_root_whose_owners_cannot_be_mapped_is_refused_or_warned_of() {
    let Some(unmapped) = Unmapped::new() else { return };
    let (done, map, output) = unmapped.run("auto", &["--", "cat", "/proc/self/uid_map"]);
    assert!(done && map.contains("4294967295"), "{map}{output}");
    assert!(output.contains("root of the sandbox is root of the host"), "{output}");
    let (done, _, output) = unmapped.run("required", &["--", "true"]);
    assert!(!done && output.contains("cannot be kept apart"), "{output}");
}

#[test]
fn over_a_root_that_is_not_mapped_other_users_have_no_rights_of_root() {
    let Some(unmapped) = Unmapped::new() else { return };
    let become_another = "
import ctypes, os
os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000)
print('bits', ctypes.CDLL(None).prctl(27))
for line in open('/proc/self/status'):
    if line.startswith(('CapPrm', 'CapEff')): print(line.split()[1].strip('0') or 'none')
";
    let (done, stored, output) = unmapped.run("auto", &["--", "python3", "-c", become_another]);
    assert!(done && stored == "bits 0\nnone\nnone\n", "{stored}{output}");
    let inner = ["-u", "1000", "-w", "/closed/inner", "--", "pwd"];
    let (done, reached, output) = unmapped.run("auto", &inner);
    assert!(!done && reached.is_empty(), "{reached}{output}");
    let (done, reached, output) = unmapped.run("auto", &["-w", "/closed/inner", "--", "pwd"]);
    assert!(done && reached == "/closed/inner\n", "{reached}{output}");
}

/// Ends the supervisor of a sandbox whose bridge is stopped, and waits for its first process to end.
fn assert_it_dies_with_its_supervisor(bridge: &mut Child) {
    let bridge_pid = Pid::from_raw(bridge.id() as i32);
    let (mut supervisor, mut first) = (None, None);
    eventually("the sandbox has its processes", || {
        let of = |above: Option<Pid>| above.and_then(|above| children(above).first().copied());
        supervisor = of(Some(bridge_pid));
        first = of(supervisor);
        // By then the agent has started the program, and is in the user namespace.
        of(first).is_some()
    });
    kill(bridge_pid, Signal::SIGSTOP).unwrap();
    kill(supervisor.expect("it is there"), Signal::SIGKILL).unwrap();
    let stat = format!("/proc/{}/stat", first.expect("it is there"));
    eventually("the sandbox dies with its supervisor", || {
        // Gone, or a zombie that the stopped bridge has not collected.
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
            || fs::metadata(&stat).is_err()
    });
    kill(bridge_pid, Signal::SIGKILL).unwrap();
    bridge.wait().unwrap();
}

#[test]
fn a_sandbox_dies_with_its_supervisor() {
    let burrow = Burrow::new();
    let mut bridge = burrow.command(&["run", "--", "sleep", "1000"]).spawn().unwrap();
    assert_it_dies_with_its_supervisor(&mut bridge);
}

#[test]
fn an_ordinary_user_s_sandbox_dies_with_its_supervisor_too() {
    ordinary::again("boundary::a_sandbox_dies_with_its_supervisor");
}

#[test]
fn a_sandbox_over_a_root_that_is_not_mapped_dies_with_its_supervisor() {
    let Some(unmapped) = Unmapped::new() else { return };
    let mut bridge = unmapped.command("auto", &["--", "sleep", "1000"]).spawn().unwrap();
    assert_it_dies_with_its_supervisor(&mut bridge);
}

#[test]
fn nobody_else_takes_the_ids_of_sandboxes() {
    if !Uid::effective().is_root() {
        return skip("only root's sandboxes have ids of their own");
    }
    if !have_or_skip("unshare") {
        return;
    }
    let burrow = Burrow::new();
    let one_range = [("BURROW_PROCESS_ID_RANGES", "1"), ("BURROW_PROCESS_IDS_FIRST", "1945042944")];
    if inside_with(&burrow, &one_range, "cat /proc/self/uid_map").contains("4294967295") {
        return skip_unmapped();
    }
    let mode = fs::metadata("/run/burrow-ids").unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "who can open it can take every range");
    let mut holder = burrow.command(&["run", "--", "sh", "-c", "echo up; sleep 1000"]);
    holder.envs(one_range).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    // The last range is taken. The next sandbox does not start as root of the host instead, and a network
    // namespace of its own gives nobody the same ids.
    for alone in [false, true] {
        let mut next = if alone {
            let own = burrow.command(&["run", "--", "true"]);
            let mut next = Command::new("unshare");
            next.arg("-n").arg(own.get_program()).args(own.get_args());
            next.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
            next
        } else {
            burrow.command(&["run", "--", "true"])
        };
        let next = next.envs(one_range).output().unwrap();
        let stderr = String::from_utf8_lossy(&next.stderr);
        assert!(
            !next.status.success() && stderr.contains("raise `id_ranges`"),
            "{alone}: {stderr}"
        );
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the range is free again", || {
        let mut next = burrow.command(&["run", "--", "true"]);
        next.envs(one_range).output().unwrap().status.success()
    });
}

#[test]
fn programs_die_before_an_agent_whose_own_score_is_high() {
    let burrow = Burrow::new();
    let bridge = burrow.command(&[
        "run",
        "--",
        "sh",
        "-c",
        "cat /proc/self/oom_score_adj /proc/1/oom_score_adj",
    ]);
    let mut raised = Command::new("sh");
    raised.args(["-c", "echo 900 > /proc/self/oom_score_adj && exec \"$@\"", "sh"]);
    raised.arg(bridge.get_program()).args(bridge.get_args());
    raised.envs(bridge.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = raised.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let scores: Vec<i32> = stdout.split_whitespace().map(|score| score.parse().unwrap()).collect();
    let [program, agent] = scores[..] else { panic!("{stdout}") };
    // It is that of programs while one starts.
    assert!(program == 1000 && [900, 1000].contains(&agent), "{stdout}");
}
