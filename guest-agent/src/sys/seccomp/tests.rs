//! The filter as the kernel would run it, for every number.

use super::table::{ALLOWED, KNOWN_END, REFUSED};
use super::*;

/// The filter's answer to a call with these arguments.
fn verdict(number: u32, arguments: [u64; 2], architecture: u32) -> u32 {
    let program = Program::build();
    let (mut at, mut loaded) = (0, 0);
    loop {
        let libc::sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { jt } else { jf });
        match code {
            LOAD => {
                let arguments_at = offset_of!(libc::seccomp_data, args) as u32;
                loaded = match k {
                    _ if k == offset_of!(libc::seccomp_data, arch) as u32 => architecture,
                    _ if k == offset_of!(libc::seccomp_data, nr) as u32 => number,
                    _ => arguments[((k - arguments_at) / 8) as usize] as u32,
                };
            }
            IS => at += jump(loaded == k),
            IS_FROM => at += jump(loaded >= k),
            HAS_ANY => at += jump(loaded & k != 0),
            RETURN => return k,
            other => panic!("the filter has an instruction {other}"),
        }
    }
}

const ALLOWED_ALWAYS: u32 = libc::SECCOMP_RET_ALLOW;

fn errno(errno: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

fn of(number: libc::c_long, arguments: [u64; 2]) -> u32 {
    verdict(number as u32, arguments, ARCHITECTURE)
}

#[test]
fn every_number_is_answered_as_the_table_says() {
    let decided = [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_clone3, libc::SYS_sethostname]
        .map(|number| number as u32);
    for number in (0..KNOWN_END + 500).filter(|number| !decided.contains(number)) {
        let known = ALLOWED.iter().any(|group| group.calls.contains(&libc::c_long::from(number)));
        let ring = (425..=427).contains(&number);
        let expected = match number {
            _ if known => ALLOWED_ALWAYS,
            KNOWN_END.. => errno(libc::ENOSYS),
            _ if ring => errno(libc::ENOSYS),
            _ => errno(libc::EPERM),
        };
        assert_eq!(verdict(number, [0, 0], ARCHITECTURE), expected, "{number}");
    }
}

#[test]
fn no_call_is_in_two_groups() {
    let mut calls: Vec<_> = ALLOWED.iter().flat_map(|group| group.calls).collect();
    let count = calls.len();
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), count);
    assert!(ALLOWED.iter().all(|group| !group.reason.is_empty()));
    assert!(REFUSED.iter().all(|(calls, reason)| !calls.is_empty() && !reason.is_empty()));
}

#[test]
fn another_architecture_and_x32_have_no_calls() {
    assert_eq!(verdict(0, [0, 0], 0x4000_0003), errno(libc::ENOSYS));
    assert_eq!(verdict(X32, [0, 0], ARCHITECTURE), errno(libc::ENOSYS));
    assert_eq!(verdict(X32 + 41, [1, 0], ARCHITECTURE), errno(libc::ENOSYS));
}

#[test]
fn namespaces_are_refused_and_threads_are_not() {
    let thread = 0x003d_0f00;
    assert_eq!(of(libc::SYS_clone, [thread, 0]), ALLOWED_ALWAYS);
    assert_eq!(of(libc::SYS_clone, [libc::SIGCHLD as u64, 0]), ALLOWED_ALWAYS);
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWCGROUP]
    {
        assert_eq!(of(libc::SYS_clone, [thread | flag as u64, 0]), errno(libc::EPERM));
        assert_eq!(of(libc::SYS_unshare, [flag as u64, 0]), errno(libc::EPERM));
    }
    assert_eq!(of(libc::SYS_unshare, [libc::CLONE_FILES as u64, 0]), ALLOWED_ALWAYS);
    assert_eq!(of(libc::SYS_unshare, [0x80, 0]), errno(libc::EPERM));
}

#[test]
fn sockets_leases_terminals_and_personalities_are_judged_by_their_arguments() {
    for family in FAMILIES {
        assert_eq!(of(libc::SYS_socket, [family as u64, 1]), ALLOWED_ALWAYS);
    }
    for family in [libc::AF_VSOCK, libc::AF_PACKET, libc::AF_ALG, 0, 45] {
        assert_eq!(of(libc::SYS_socket, [family as u64, 1]), errno(libc::EAFNOSUPPORT));
    }
    assert_eq!(of(libc::SYS_socketpair, [libc::AF_UNIX as u64, 1]), ALLOWED_ALWAYS);
    for family in [libc::AF_VSOCK, libc::AF_PACKET, libc::AF_TIPC, libc::AF_INET] {
        assert_eq!(of(libc::SYS_socketpair, [family as u64, 1]), errno(libc::EAFNOSUPPORT));
    }
    assert_eq!(of(libc::SYS_fcntl, [0, libc::F_SETLEASE as u64]), errno(libc::EINVAL));
    assert_eq!(of(libc::SYS_fcntl, [0, libc::F_SETFL as u64]), ALLOWED_ALWAYS);
    assert_eq!(of(libc::SYS_ioctl, [0, 0x5412]), errno(libc::EPERM));
    // The kernel looks at 32 bits of it, so nothing hides above them.
    assert_eq!(of(libc::SYS_ioctl, [0, 0x1_0000_5412]), errno(libc::EPERM));
    assert_eq!(of(libc::SYS_ioctl, [0, 0x5401]), ALLOWED_ALWAYS);
    assert_eq!(of(libc::SYS_personality, [0xffff_ffff, 0]), ALLOWED_ALWAYS);
    assert_eq!(of(libc::SYS_personality, [0x40_0000, 0]), errno(libc::EPERM));
}
