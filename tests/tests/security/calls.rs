//! Every system call by its number, as a program in a sandbox makes it, against the agent's own table. The
//! numbers are those of one architecture.
#![cfg(target_arch = "x86_64")]

// The table itself, so that nothing here has to repeat it.
#[path = "../../../guest-agent/src/sys/seccomp/table.rs"]
#[allow(dead_code, reason = "the agent uses more of it")]
mod table;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use table::{ALLOWED, KNOWN_END, REFUSED};
use tests::Burrow;

use crate::ordinary;

/// Calls that must not be made to find out: they do not return, or return twice.
const UNTRIED: [u32; 8] = [
    15,  // rt_sigreturn
    34,  // pause
    56,  // clone
    57,  // fork
    58,  // vfork
    60,  // exit
    130, // rt_sigsuspend
    231, // exit_group
];

/// Calls of which the arguments decide, with the answer to those of the probe; and those that a kernel could be
/// without.
const JUDGED: [(u32, i32); 9] = [
    (41, EAFNOSUPPORT), // socket
    (53, EAFNOSUPPORT), // socketpair
    (135, 0),           // personality: the question
    (272, EPERM),       // unshare
    (425, ENOSYS),      // io_uring_setup
    (426, ENOSYS),
    (427, ENOSYS),
    (435, ENOSYS), // clone3
    (16, EBADF),   // ioctl, which gets as far as its descriptor
];

/// Allowed calls to which the kernel itself says no when they are made like this.
const REFUSED_BY_KERNEL: [u32; 2] = [
    116, // setgroups, in the user namespace of an ordinary user
    446, // landlock_restrict_self, without no_new_privs
];
/// The same with [`ENOSYS`].
const UNKNOWN_TO_KERNEL: [u32; 7] = [
    202, // futex, of an operation -1
    205, // set_thread_area, and the next, of 32-bit programs
    211, // get_thread_area
    214, // epoll_ctl_old
    215, // epoll_wait_old
    336, // uprobe, which is newer than its number
    447, // memfd_secret, where it is not switched on
];
/// What ends a program that is not where the kernel has put it.
const ENDS: [u32; 1] = [
    335, // uretprobe
];

/// The first call that the oldest supported kernel (5.15) may not have.
const NEW_FROM: u32 = 449;

const EPERM: i32 = 1;
const EBADF: i32 = 9;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;

/// A child for each number makes the call with arguments that nothing can be done with: no descriptor, no
/// address, no flag is -1. Prints `number errno`, or `number died`.
const PROBE: &str = r#"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
untried = set(map(int, sys.argv[2].split(",")))
numbers = [n for n in range(int(sys.argv[1]) + 100) if n not in untried]
numbers += [0x40000000 | n for n in range(0, 548)]
for number in numbers:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        os.write(writer, b"%d" % (ctypes.get_errno() if result == -1 else 0))
        libc._exit(0)
    os.close(writer)
    received = os.read(reader, 20).decode()
    os.close(reader)
    os.waitpid(child, 0)
    print(number, received or "died")
"#;

/// A program that makes a call by the door of 32-bit programs: `getpid`, by its number there.
const COMPAT: &str = r#"
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# push rbx; mov eax, edi; int 0x80; pop rbx; ret
code.write(b"\x53\x89\xf8\xcd\x80\x5b\xc3")
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)(20))
"#;

fn is_right(number: u32, text: &str) -> bool {
    let is_allowed = ALLOWED.iter().any(|group| group.calls.contains(&i64::from(number)));
    let Ok(errno) = text.parse::<i32>() else { return is_allowed && ENDS.contains(&number) };
    if let Some((_, expected)) = JUDGED.iter().find(|(judged, _)| *judged == number) {
        return errno == *expected;
    }
    if !is_allowed {
        return errno == if number < KNOWN_END { EPERM } else { ENOSYS };
    }
    // What is allowed reaches the kernel, which refuses the arguments or carries out the call.
    match errno {
        EPERM => REFUSED_BY_KERNEL.contains(&number),
        ENOSYS => {
            number >= NEW_FROM || UNKNOWN_TO_KERNEL.contains(&number) || ENDS.contains(&number)
        }
        _ => true,
    }
}

#[test]
fn every_system_call_is_answered_as_the_table_says() {
    let untried = UNTRIED.map(|number| number.to_string()).join(",");
    let end = KNOWN_END.to_string();
    let burrow = Burrow::new();
    let output = burrow.ok(&["run", "--", "python3", "-c", PROBE, &end, &untried]);
    let answers: BTreeMap<u32, &str> = output
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(number, output)| (number.parse().expect("a number"), output))
        .collect();
    assert_eq!(answers.len(), KNOWN_END as usize + 100 - UNTRIED.len() + 548);
    let wrong: Vec<_> =
        answers.iter().filter(|(number, output)| !is_right(**number, output)).collect();
    assert!(wrong.is_empty(), "number and errno: {wrong:?}");
}

#[test]
fn programs_of_32_bits_have_no_calls() {
    let burrow = Burrow::new();
    let ended = burrow.run(&["run", "--", "python3", "-c", COMPAT]);
    let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
    // A kernel without that door ends the program.
    assert!(stdout == "-38\n" || ended.status.code() == Some(139), "{stdout:?} {:?}", ended.status);
}

/// Each of these was once a way out of some sandbox. They are judged by their arguments, which the numbers
/// alone do not show.
#[test]
fn calls_with_the_wrong_arguments_are_refused() {
    let tried = r#"
import ctypes, errno, fcntl, os, pty
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    print(name, errno.errorcode.get(ctypes.get_errno(), result))
pair = (ctypes.c_int * 2)()
for name, family in [("packet", 17), ("alg", 38), ("vsock", 40), ("vsock in 64 bits", (1 << 32) | 40), ("xdp", 44)]:
    call(name, 41, family, 1, 0)
    call("pair of " + name, 53, family, 1, 0, ctypes.addressof(pair))
for name, flag in [("user", 0x10000000), ("mount", 0x20000), ("cgroup", 0x02000000), ("net", 0x40000000)]:
    call("unshare " + name, 272, flag)
    call("clone " + name, 56, flag | 17, 0, 0, 0, 0)
master, slave = pty.openpty()
call("TIOCSTI", 16, slave, 0x5412, 0)
call("TIOCSTI in 64 bits", 16, slave, (1 << 32) | 0x5412, 0)
call("TIOCLINUX", 16, slave, 0x541C, 0)
call("lease", 72, os.open("/etc/passwd", os.O_RDONLY), 1024, 1)
call("personality", 135, 0x0400000)
"#;
    let burrow = Burrow::new();
    let output = burrow.ok(&["run", "--", "python3", "-c", tried]);
    for line in output.lines() {
        let refused = ["EPERM", "EAFNOSUPPORT", "EINVAL"];
        assert!(refused.iter().any(|errno| line.ends_with(errno)), "{line}\n{output}");
    }
    assert_eq!(output.lines().count(), 23, "{output}");
}

#[test]
fn programs_begin_without_inheritable_capabilities_and_groups_of_the_host() {
    let burrow = Burrow::new();
    let output =
        burrow.ok(&["run", "--", "grep", "-E", "^(CapInh|CapAmb|Groups)", "/proc/self/status"]);
    let values: Vec<_> = output.lines().filter_map(|line| line.split_once(':')).collect();
    assert_eq!(values.len(), 3, "{output}");
    for (name, value) in values {
        // An ordinary user's groups cannot be given up, and are nobody's in the sandbox.
        let is_none =
            |group: &str| ["0", "65534"].contains(&group) || group.chars().all(|c| c == '0');
        assert!(value.split_whitespace().all(is_none), "{name}: {value}");
    }
}

#[test]
fn every_system_call_of_an_ordinary_user_is_answered_so() {
    ordinary::again("calls::every_system_call_is_answered_as_the_table_says");
}

#[test]
fn programs_of_32_bits_of_an_ordinary_user_have_no_calls_either() {
    ordinary::again("calls::programs_of_32_bits_have_no_calls");
}

#[test]
fn calls_of_an_ordinary_user_with_the_wrong_arguments_are_refused_too() {
    ordinary::again("calls::calls_with_the_wrong_arguments_are_refused");
}

#[test]
fn programs_of_an_ordinary_user_begin_without_capabilities_too() {
    ordinary::again(
        "calls::programs_begin_without_inheritable_capabilities_and_groups_of_the_host",
    );
}

/// The page of the book, made of the table's own text.
fn page() -> String {
    let source = include_str!("../../../guest-agent/src/sys/seccomp/table.rs");
    let mut page = String::from(
        "# System calls of the process machine\n\n\
         A program in a process machine may make these calls and no others. The page is made from\n\
         `guest-agent/src/sys/seccomp/table.rs`; write it again with `BURROW_WRITE_CALLS=1` and the test\n\
         `security::calls::the_page_lists_the_table`. A call that the table does not know is answered as a\n\
         kernel does that does not have it (`ENOSYS`), any other that is missing with `EPERM`. Some are judged\n\
         by their arguments as well: the families of `socket`, the namespaces of `clone` and `unshare`, the\n\
         values of `personality`, `F_SETLEASE` of `fcntl`, and `TIOCSTI` and `TIOCLINUX` of `ioctl`.\n\n\
         | why | calls |\n|---|---|\n",
    );
    let groups = source.split("group(\"").skip(1).take(ALLOWED.len());
    for (text, group) in groups.zip(ALLOWED) {
        let (_, calls) = text.split_once("&[").expect("a list of calls");
        let calls = calls.split(']').next().expect("its end");
        let names = calls.split([',', '\n', ' ']).filter_map(|word| {
            let newer = || word.strip_prefix("newer::").map(str::to_lowercase);
            word.strip_prefix("SYS_").map(str::to_owned).or_else(newer)
        });
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let names =
            if names.is_empty() { "numbers 335 and 336".to_owned() } else { names.join(" ") };
        writeln!(page, "| {} | {names} |", group.reason).expect("a string takes all");
    }
    page += "\n## What is left out, and why\n\n| calls | why |\n|---|---|\n";
    for (calls, reason) in REFUSED {
        writeln!(page, "| {calls} | {reason} |").expect("a string takes all");
    }
    page
}

#[test]
fn the_page_lists_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/system-calls.md");
    if std::env::var_os("BURROW_WRITE_CALLS").is_some() {
        std::fs::write(path, page()).expect("the page is written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page(), "write it again with BURROW_WRITE_CALLS=1");
}
