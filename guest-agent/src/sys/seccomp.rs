//! A filter on the system calls of everything that this process will ever start: no door to the host
//! but those that are there on purpose.
//!
//! `boot` calls it, once, in a sandbox that shares its kernel with the host.

use std::io;
use std::mem::offset_of;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Numbers from here on are those of x32, another way into the same kernel.
const X32: u32 = 0x4000_0000;

/// Families of sockets that a program may open. A socket of any other may lead out of the sandbox's
/// own network namespace, as those between machines and their host do, or to parts of the kernel that
/// nobody here needs.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IS_FROM: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

const ALLOW: libc::sock_filter = step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);

const fn refuse(errno: libc::c_int) -> libc::sock_filter {
    step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32)
}

/// Jumps count the steps that are left out.
static FILTER: [libc::sock_filter; 18] = [
    step(LOAD, 0, 0, offset_of!(libc::seccomp_data, arch) as u32),
    step(IS, 0, 12, ARCHITECTURE),
    step(LOAD, 0, 0, offset_of!(libc::seccomp_data, nr) as u32),
    step(IS_FROM, 10, 0, X32),
    // Its rings open sockets without a call that a filter could see.
    step(IS, 9, 0, libc::SYS_io_uring_setup as u32),
    step(IS, 6, 0, libc::SYS_fcntl as u32),
    step(IS, 0, 8, libc::SYS_socket as u32),
    step(LOAD, 0, 0, offset_of!(libc::seccomp_data, args) as u32),
    step(IS, 6, 0, FAMILIES[0] as u32),
    step(IS, 5, 0, FAMILIES[1] as u32),
    step(IS, 4, 0, FAMILIES[2] as u32),
    step(IS, 3, 4, FAMILIES[3] as u32),
    // A lease on a file that is the host's too makes whoever opens it there wait.
    step(LOAD, 0, 0, (offset_of!(libc::seccomp_data, args) + size_of::<u64>()) as u32),
    step(IS, 3, 1, libc::F_SETLEASE as u32),
    refuse(libc::ENOSYS),
    ALLOW,
    refuse(libc::EAFNOSUPPORT),
    refuse(libc::EINVAL),
];

/// Puts the filter over this process and all that it starts. Programs that change their user keep
/// working, since the caller may administer its namespace and need not forbid that.
pub fn close_doors() -> io::Result<()> {
    let program = libc::sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, whose steps it only reads, before the call returns.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
