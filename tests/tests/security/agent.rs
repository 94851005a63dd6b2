//! The agent in its sandbox, as the kernel shows it to programs: which rights its threads have, who may trace it,
//! and where descriptors lead that somebody has come by.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tests::{Burrow, have_or_skip, skip};

use crate::ordinary;

/// The capabilities of programs, and those that the agent's event loop keeps besides: `NET_ADMIN`, `SYS_PTRACE`
/// and `SYS_ADMIN`.
const PROGRAMS: u64 = 0xa804_25fb;
const AGENT: u64 = PROGRAMS | 1 << 12 | 1 << 19 | 1 << 21;
/// How often a thread is looked for that works on files.
const LOOKS_MAX: usize = 5;

#[test]
fn threads_that_work_on_files_act_with_the_capabilities_of_programs() {
    let mut burrow = Burrow::new();
    burrow.serve();
    burrow.ok(&["start", "--name", "w"]);
    let file = burrow.scratch().join("x");
    // A file thread stays for a while when its work is done, which may be over before a slow machine has looked.
    let look = "grep -hs -E '^(CapEff|CapPrm)' /proc/1/task/*/status; echo; \
                grep CapEff /proc/1/status; echo; cat /proc/1/task/*/comm 2>/dev/null; true";
    let mut output = String::new();
    for _ in 0..LOOKS_MAX {
        burrow.ok(&["cp", "w:/etc/passwd", file.to_str().expect("UTF-8")]);
        output = burrow.ok(&["exec", "w", "--", "sh", "-c", look]);
        if output.contains(&format!("CapEff:\t{PROGRAMS:016x}")) {
            break;
        }
    }
    let (threads, rest) = output.split_once("\n\n").expect("three parts");
    let (first, names) = rest.split_once("\n\n").expect("three parts");
    let set = |line: &str| {
        let (name, digits) = line.split_once(":\t").expect("a name and a set");
        (name.to_owned(), u64::from_str_radix(digits, 16).expect("a set"))
    };
    assert_eq!(set(first.trim_end()).1, AGENT, "{output}");
    let threads: Vec<_> = threads.lines().map(set).collect();
    // What a thread is permitted protects it from being traced.
    assert!(threads.iter().all(|(name, set)| name != "CapPrm" || *set == AGENT), "{output}");
    let acting = threads.iter().filter(|(name, _)| name == "CapEff");
    let (files, others): (Vec<_>, Vec<_>) = acting.partition(|(_, set)| *set == PROGRAMS);
    assert!(!files.is_empty(), "no thread has worked on files: {output}");
    // Programs begin with what the threads have that start them.
    let spawners = names.lines().filter(|name| *name == "spawner").count();
    assert!((1..=2).contains(&spawners), "{output}");
    assert_eq!(others.len(), 1 + spawners, "another thread has rights of the agent: {output}");
}

#[test]
fn threads_of_an_ordinary_users_agent_do_too() {
    ordinary::again("agent::threads_that_work_on_files_act_with_the_capabilities_of_programs");
}

/// Tries every way to another process's memory and descriptors, on each of the agent's threads.
const TRACE: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print('I am', os.getuid())
def call(name, number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    print(name, 'DONE' if result >= 0 else ctypes.get_errno())
local = (ctypes.c_long * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
remote = (ctypes.c_long * 2)(0x400000, 8)
vectors = ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0
for thread in map(int, os.listdir('/proc/1/task')):
    call('attach', 101, 16, thread, 0, 0)
    call('seize', 101, 0x4206, thread, 0, 0)
    call('read memory', 310, thread, *vectors)
    call('write memory', 311, thread, *vectors)
    for name in 'mem', 'maps', 'environ', 'syscall', 'stack', 'auxv':
        try: print(name, 'DONE' if open(f'/proc/1/task/{thread}/{name}', 'rb').read(1) else 13)
        except OSError as error: print(name, error.errno)
agent = os.pidfd_open(1)
for number in range(64): call('take descriptor', 438, agent, number, 0)
";

#[test]
#[cfg(target_arch = "x86_64")]
fn root_of_a_sandbox_neither_traces_the_agent_nor_reads_its_memory() {
    if !have_or_skip("python3") {
        return;
    }
    let mut burrow = Burrow::new();
    burrow.serve();
    burrow.ok(&["start", "--name", "w"]);
    // There are threads of both kinds.
    burrow.ok(&["cp", "w:/etc/passwd", burrow.scratch().join("x").to_str().expect("UTF-8")]);
    let output = burrow.ok(&["exec", "w", "--", "python3", "-c", TRACE]);
    assert!(output.starts_with("I am 0\n"), "{output}");
    assert!(output.lines().count() > 64 + 2 * 10, "only one thread was tried: {output}");
    assert!(!output.contains("DONE"), "{output}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn nor_does_root_of_an_ordinary_users_sandbox() {
    ordinary::again("agent::root_of_a_sandbox_neither_traces_the_agent_nor_reads_its_memory");
}

/// Tries to set limits of each of the agent's threads that would end it or leave it without descriptors.
const LIMIT: &str = "
import os, resource
for thread in map(int, os.listdir('/proc/1/task')):
    for kind, limit in (resource.RLIMIT_NOFILE, 3), (resource.RLIMIT_CPU, 1), (resource.RLIMIT_FSIZE, 0):
        try: print(thread, kind, 'DONE', resource.prlimit(thread, kind, (limit, limit)))
        except OSError as error: print(thread, kind, error.errno)
print(os.getresgid(), resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (64, 64))[0] > 64)
";

#[test]
fn root_of_a_sandbox_does_not_limit_the_agent() {
    if !have_or_skip("python3") {
        return;
    }
    let mut burrow = Burrow::new();
    burrow.serve();
    burrow.ok(&["start", "--name", "w"]);
    burrow.ok(&["cp", "w:/etc/passwd", burrow.scratch().join("x").to_str().expect("UTF-8")]);
    let groups = burrow.ok(&["exec", "w", "--", "cat", "/proc/self/gid_map"]);
    if groups.lines().count() == 1 && groups.trim_end().ends_with(" 1") {
        return skip(
            "a sandbox of an ordinary user's bridge has one group, which is its agent's too",
        );
    }
    let output = burrow.ok(&["exec", "w", "--", "python3", "-c", LIMIT]);
    assert!(output.lines().count() > 2 * 3, "only one thread was tried: {output}");
    assert!(!output.contains("DONE"), "{output}");
    assert!(
        output.ends_with("(0, 0, 0) True\n"),
        "programs have groups and limits of their own: {output}"
    );
    burrow.ok(&["exec", "w", "--", "true"]);
}

/// Gives a descriptor of one directory to the first who connects to a socket in another.
const LEAK: &str = "
import os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.bind('leak'); os.chmod('leak', 0o777); door.listen()
    print(flush=True)
    link, _ = door.accept()
    socket.send_fds(link, [b'x'], [os.open(sys.argv[1], os.O_PATH)])
";

/// Takes that descriptor, and looks through it.
const LOOK_THROUGH: &str = "
import ctypes, os, socket
print('version', ctypes.CDLL(None).syscall(444, None, 0, 1))
with socket.socket(socket.AF_UNIX) as link:
    link.connect('/workspace/leak')
    _, [leaked], *_ = socket.recv_fds(link, 1, 1)
for path in 'secret', '.', 'below/secret', '../..':
    try:
        found = os.open(path, os.O_RDONLY, dir_fd=leaked)
        print(path, 'DONE', os.listdir(found) if os.path.isdir(found) else os.read(found, 9))
    except OSError as error: print(path, error.errno)
try: os.mkdir('made', dir_fd=leaked); print('DONE')
except OSError as error: print('made', error.errno)
# What is the sandbox's own stays in reach, whatever is mounted there.
open('/tmp/x', 'w').write('x'); os.rename('/tmp/x', '/tmp/y')
for path in '/workspace/ours', '/proc/self/status', '/proc/self/fd/0', '/dev/null', '/etc/passwd', '/tmp/y':
    open(path).read(1)
os.makedirs('/usr/one'); os.makedirs('/usr/two'); open('/usr/one/x', 'w'); os.rename('/usr/one/x', '/usr/two/x')
print('reached')
";

#[test]
fn a_descriptor_of_the_host_that_leaks_into_a_sandbox_leads_nowhere() {
    if !have_or_skip("python3") {
        return;
    }
    let place = TempDir::with_prefix("burrow-").expect("a directory");
    let [shared, other] = ["shared", "other"].map(|name| place.path().join(name));
    fs::create_dir(&shared).expect("a directory");
    fs::create_dir_all(other.join("below")).expect("a directory");
    for path in [other.join("secret"), other.join("below/secret"), shared.join("ours")] {
        fs::write(path, "of the host").expect("a file");
    }
    let mut leak = Command::new("python3");
    leak.args(["-c", LEAK]).arg(&other).current_dir(&shared).stdout(Stdio::piped());
    let mut leak = leak.spawn().expect("it starts");
    let mut line = String::new();
    let ready = leak.stdout.take().expect("it is piped");
    BufReader::new(ready).read_line(&mut line).expect("it listens");
    let mut burrow = Burrow::new();
    burrow.serve();
    let mount = ["--workspace", shared.to_str().expect("UTF-8"), "--mount"];
    burrow.ok(&[&["start", "--name", "w"], &mount[..]].concat());
    let output = burrow.ok(&["exec", "w", "--", "python3", "-c", LOOK_THROUGH]);
    assert!(leak.wait().expect("it ends").success(), "it was not asked for");
    let (version, output) = output.split_once('\n').expect("a line");
    let version: i32 = version.trim_start_matches("version ").parse().expect("a number");
    if version < 2 {
        return skip("this kernel has no Landlock with which files can be moved");
    }
    assert!(!output.contains("DONE"), "{output}");
    assert!(output.ends_with("reached\n"), "{output}");
    assert_eq!(output.lines().filter(|line| line.ends_with(" 13")).count(), 5, "{output}");
}

#[test]
fn a_descriptor_that_leaks_into_an_ordinary_users_sandbox_leads_nowhere_either() {
    ordinary::again("agent::a_descriptor_of_the_host_that_leaks_into_a_sandbox_leads_nowhere");
}
