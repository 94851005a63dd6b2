//! Denies the daemon of a directory some system calls, whatever a guest asks for. It must not leave set-id
//! programs or devices where the host's people would use them. The daemon cannot remove the filter.
//!
//! Its own mount is `nosuid,nodev`, but that protects only those who use this mount, not the host's people.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// The bits of a mode that make a program run as its owner or its group.
const SET_ID: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];
/// The device types of a mode.
const DEVICES: [u32; 2] = [libc::S_IFCHR, libc::S_IFBLK];

/// Calls that take a mode, and which of their arguments that is.
const MODES: &[(i64, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_mknodat, 2)];
/// Those that make devices.
const MAKERS: &[(i64, u8)] = &[(libc::SYS_mknodat, 2)];
/// Calls that make a file where their flags say so, with those and the mode.
const OPENERS: &[(i64, u8, u8)] = &[(libc::SYS_openat, 2, 3)];
/// Those flags. A file without a name gets one later.
const MAKING: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// Calls that do the same with a mode that no filter can see, or that change by other means what a program
/// may do. A program that gets `ENOSYS` uses others.
const OTHERS: &[i64] = &[
    libc::SYS_openat2,
    libc::SYS_fchmodat2,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_io_uring_setup,
];

/// The same calls in the forms that only older processors have.
#[cfg(target_arch = "x86_64")]
mod older {
    use nix::libc;

    pub const MODES: &[(i64, u8)] = &[(libc::SYS_chmod, 1), (libc::SYS_mknod, 1)];
    pub const MAKERS: &[(i64, u8)] = &[(libc::SYS_mknod, 1)];
    pub const OPENERS: &[(i64, u8, u8)] = &[(libc::SYS_open, 1, 2)];
    pub const OTHERS: &[i64] = &[libc::SYS_creat];
}
#[cfg(not(target_arch = "x86_64"))]
mod older {
    pub const MODES: &[(i64, u8)] = &[];
    pub const MAKERS: &[(i64, u8)] = &[];
    pub const OPENERS: &[(i64, u8, u8)] = &[];
    pub const OTHERS: &[i64] = &[];
}

/// Applies the filter to this process and what it executes. An ordinary user cannot give up groups, so its
/// daemon has all rights of that user. A daemon that insists on giving them up is answered that it succeeded.
pub(super) fn apply(is_ordinary: bool) -> Result<(), Error> {
    let mut filters = vec![(by_mode()?, libc::EPERM), (others(), libc::ENOSYS)];
    if is_ordinary {
        filters.push(([(libc::SYS_setgroups, Vec::new())].into(), 0));
    }
    for (rules, errno) in filters {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?;
        let program: BpfProgram = filter.try_into()?;
        apply_filter(&program)?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn by_mode() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for &(call, mode) in MODES.iter().chain(older::MODES) {
        for bit in SET_ID {
            rules.entry(call).or_default().push(rule([(mode, bit, bit)])?);
        }
    }
    for &(call, mode) in MAKERS.iter().chain(older::MAKERS) {
        for device in DEVICES {
            rules.entry(call).or_default().push(rule([(mode, libc::S_IFMT, device)])?);
        }
    }
    for &(call, flags, mode) in OPENERS.iter().chain(older::OPENERS) {
        for bit in SET_ID {
            for making in MAKING.map(i32::cast_unsigned) {
                let conditions = [(flags, making, making), (mode, bit, bit)];
                rules.entry(call).or_default().push(rule(conditions)?);
            }
        }
    }
    Ok(rules)
}

fn others() -> Rules {
    OTHERS.iter().chain(older::OTHERS).map(|call| (*call, Vec::new())).collect()
}

/// Matches a call whose arguments have these values under the masks.
fn rule<const N: usize>(conditions: [(u8, u32, u32); N]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.map(|(argument, mask, value)| {
        let compare = SeccompCmpOp::MaskedEq(mask.into());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value.into())
    });
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}
