//! Filters on the system calls of everything that this process will ever start: an allow-list, and no door
//! to the host but those that are there on purpose.
//!
//! `boot` calls [`close_doors`], once, in a sandbox that shares its kernel with the host. The agent itself
//! needs two calls more than programs, to start them in their control groups and to give the sandbox its
//! name; `spawn` takes those from each program.

pub mod table;

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};

use table::{ALLOWED, KNOWN_END};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Numbers from here on are those of x32, another way into the same kernel.
const X32: u32 = 0x4000_0000;

/// Families of sockets that a program may open. A socket of another family may lead out of the sandbox's own
/// network namespace, like those between machines and their host, or to parts of the kernel that nobody here
/// needs.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Flags of `clone` that make a namespace.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// The flags of `unshare`, which has one more. In `clone` that number is part of a signal's.
const NEW_NAMESPACES_OR_TIME: u32 = NEW_NAMESPACES | 0x80;

/// Personalities that change nothing but names, and the layout of a program that is debugged; and the
/// question for the present one. Others make old holes in programs.
const PERSONALITIES: [u32; 6] = [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

/// Requests that put words into the mouth of a terminal: its reader takes them for typed.
const TYPING: [u32; 2] = [0x5412, 0x541c];

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IS_FROM: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const HAS_ANY: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// One instruction. Jumps count the instructions that are left out.
const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

const ALLOW: libc::sock_filter = step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);

const fn refuse(errno: libc::c_int) -> libc::sock_filter {
    step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32)
}

const LOAD_NUMBER: libc::sock_filter = step(LOAD, 0, 0, offset_of!(libc::seccomp_data, nr) as u32);

/// Loads the lower half of an argument, which is all of those that are looked at.
const fn load_argument(index: usize) -> libc::sock_filter {
    let offset = offset_of!(libc::seccomp_data, args) + index * size_of::<u64>();
    step(LOAD, 0, 0, offset as u32)
}

/// The calls of the table, one bit each.
const CALLS: [u64; KNOWN_END.div_ceil(64) as usize] = {
    let mut bits = [0; KNOWN_END.div_ceil(64) as usize];
    let mut group = 0;
    while group < ALLOWED.len() {
        let calls = ALLOWED[group].calls;
        let mut place = 0;
        while place < calls.len() {
            let number = calls[place] as usize;
            bits[number / 64] |= 1 << (number % 64);
            place += 1;
        }
        group += 1;
    }
    bits
};

fn is_allowed(number: u32) -> bool {
    number < KNOWN_END && CALLS[number as usize / 64] & (1 << (number % 64)) != 0
}

/// Writes a filter.
#[derive(Default)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    /// Filters a call of this number by these steps, each path of which must return.
    fn decide(&mut self, number: libc::c_long, steps: &[libc::sock_filter]) {
        self.0.push(step(IS, 0, steps.len() as u8, number as u32));
        self.0.extend(steps);
    }

    /// The steps for an argument that must be one of these.
    fn one_of(index: usize, values: &[u32], errno: libc::c_int) -> Vec<libc::sock_filter> {
        Self::matched(index, values, ALLOW, refuse(errno))
    }

    /// The steps for an argument that must be none of these.
    fn none_of(index: usize, values: &[u32], errno: libc::c_int) -> Vec<libc::sock_filter> {
        Self::matched(index, values, refuse(errno), ALLOW)
    }

    fn matched(
        index: usize,
        values: &[u32],
        if_one: libc::sock_filter,
        otherwise: libc::sock_filter,
    ) -> Vec<libc::sock_filter> {
        let mut steps = vec![load_argument(index)];
        for (place, value) in values.iter().enumerate() {
            // Jumps to after `otherwise`.
            steps.push(step(IS, (values.len() - place) as u8, 0, *value));
        }
        steps.extend([otherwise, if_one]);
        steps
    }

    /// The steps for an argument that must have none of these bits.
    fn without(index: usize, bits: u32) -> Vec<libc::sock_filter> {
        vec![load_argument(index), step(HAS_ANY, 0, 1, bits), refuse(libc::EPERM), ALLOW]
    }

    /// The whole filter.
    fn build() -> Vec<libc::sock_filter> {
        let mut program = Self(vec![
            step(LOAD, 0, 0, offset_of!(libc::seccomp_data, arch) as u32),
            step(IS, 1, 0, ARCHITECTURE),
            refuse(libc::ENOSYS),
            LOAD_NUMBER,
            step(IS_FROM, 0, 1, X32),
            refuse(libc::ENOSYS),
        ]);
        let families = FAMILIES.map(|family| family as u32);
        program.decide(libc::SYS_socket, &Self::one_of(0, &families, libc::EAFNOSUPPORT));
        // A pair of another family would have the kernel load that family's module.
        let pairs = [libc::AF_UNIX as u32];
        program.decide(libc::SYS_socketpair, &Self::one_of(0, &pairs, libc::EAFNOSUPPORT));
        // A lease on a file that the host shares makes the host's programs wait when they open it.
        program
            .decide(libc::SYS_fcntl, &Self::none_of(1, &[libc::F_SETLEASE as u32], libc::EINVAL));
        program.decide(libc::SYS_ioctl, &Self::none_of(1, &TYPING, libc::EPERM));
        program.decide(libc::SYS_clone, &Self::without(0, NEW_NAMESPACES));
        program.decide(libc::SYS_unshare, &Self::without(0, NEW_NAMESPACES_OR_TIME));
        program.decide(libc::SYS_personality, &Self::one_of(0, &PERSONALITIES, libc::EPERM));
        // The agent's alone: `spawn` takes them from programs.
        program.decide(libc::SYS_clone3, &[ALLOW]);
        program.decide(libc::SYS_sethostname, &[ALLOW]);
        for number in
            [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]
        {
            program.decide(number, &[refuse(libc::ENOSYS)]);
        }
        program.add_ranges();
        program.0
    }

    /// Allows the runs of numbers that the table has, in ascending order, and refuses all others.
    fn add_ranges(&mut self) {
        let mut number = 0;
        while number < KNOWN_END {
            let end = (number..KNOWN_END).find(|next| is_allowed(*next) != is_allowed(number));
            let end = end.unwrap_or(KNOWN_END);
            let verdict = if is_allowed(number) { ALLOW } else { refuse(libc::EPERM) };
            self.0.extend([step(IS_FROM, 1, 0, end), verdict]);
            number = end;
        }
        self.0.push(refuse(libc::ENOSYS));
    }
}

/// Whether this process has its filter, and so whether programs get theirs.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Puts the filter over this process and all that it starts. Programs that change their user keep
/// working, since the caller may administer its namespace and need not forbid that.
pub fn close_doors() -> io::Result<()> {
    install(&Program::build())?;
    CLOSED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether children must call [`become_program`].
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

static PROGRAMS: [libc::sock_filter; 6] = [
    LOAD_NUMBER,
    step(IS, 2, 0, libc::SYS_clone3 as u32),
    step(IS, 2, 0, libc::SYS_sethostname as u32),
    ALLOW,
    refuse(libc::ENOSYS),
    refuse(libc::EPERM),
];

/// Takes what only the agent may do from this process: naming the sandbox, and the one call whose flags a
/// filter cannot see. Allocates nothing.
pub fn become_program() -> io::Result<()> {
    install(&PROGRAMS)
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, whose steps it only reads, before the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_prctl,
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
