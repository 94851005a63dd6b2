//! Landlock: the kernel lets this process and its descendants open files only beneath given directories,
//! through whatever descriptor they try.
//!
//! `boot` calls [`confine`] once, after all mounts of the sandbox have been made. It cannot be undone.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// The first version that lets files be moved between directories.
const VERSION_WITH_MOVES: i64 = 2;

/// `struct landlock_ruleset_attr`. An older kernel accepts fields that it does not know if they are zero.
#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    directory: i32,
}

/// The right to list a directory.
const READ_DIRECTORY: u64 = 1 << 3;

/// Allows beneath two directories all that the usual permissions allow, beneath `listed` to list directories,
/// and nothing elsewhere. `false` if the kernel has no Landlock, or only its first version.
pub fn confine(
    one: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    listed: Option<BorrowedFd<'_>>,
) -> io::Result<bool> {
    const VERSION: libc::c_uint = 1;
    const RULE_PATH_BENEATH: libc::c_int = 1;
    // SAFETY: the question for the version takes no ruleset.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<Ruleset>(), 0_usize, VERSION)
    };
    if version < VERSION_WITH_MOVES {
        return Ok(false);
    }
    let files = rights(version);
    // From version 6 on, signals and abstract sockets cannot leave either.
    let rules = Ruleset { files, network: 0, scoped: if version < 6 { 0 } else { 0b11 } };
    // SAFETY: the kernel reads one ruleset of the size given.
    let ruleset = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const rules,
            size_of::<Ruleset>(),
            0_u32,
        )
    })?;
    // SAFETY: the kernel has just made the descriptor and nobody else knows it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset as i32) };
    let rules = [(Some(one), files), (other, files), (listed, READ_DIRECTORY)];
    for (directory, allowed) in rules {
        let Some(directory) = directory else { continue };
        let rule = Beneath { allowed, directory: directory.as_raw_fd() };
        // SAFETY: takes a descriptor of a ruleset, and reads one rule of that kind.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0_u32,
            )
        })?;
    }
    // SAFETY: takes a descriptor of a ruleset.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) })?;
    Ok(true)
}

/// The access rights for files of a version, one bit each. Version 2 added moving, 3 truncation, and 5 the
/// `ioctl` of devices.
fn rights(version: i64) -> u64 {
    let known = match version {
        ..3 => 14,
        3..5 => 15,
        5.. => 16,
    };
    (1 << known) - 1
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, create_dir, rename, write};
    use std::os::fd::AsFd;

    use nix::fcntl::{OFlag, openat};
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn a_descriptor_of_another_place_leads_nowhere() {
        let place = std::env::temp_dir().join(format!("burrow-landlock-{}", std::process::id()));
        let [inside, outside] = ["inside", "outside"].map(|name| place.join(name));
        create_dir(&place).unwrap();
        for directory in [&inside, &outside] {
            create_dir(directory).unwrap();
            create_dir(directory.join("deep")).unwrap();
            write(directory.join("deep/file"), "x").unwrap();
        }
        let (allowed, leaked) = (File::open(&inside).unwrap(), File::open(&outside).unwrap());
        let look = |directory: &File| {
            openat(directory, "deep/file", OFlag::O_RDONLY, Mode::empty()).map(drop)
        };
        // The rules hold for a thread and its children.
        let confined = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            // On a kernel without it there is nothing to test.
            if confine(allowed.as_fd(), None, None).unwrap() {
                assert_eq!(look(&leaked), Err(nix::errno::Errno::EACCES));
                assert_eq!(look(&allowed), Ok(()));
                rename(inside.join("deep/file"), inside.join("moved")).unwrap();
            }
        });
        confined.join().unwrap();
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn each_version_is_asked_for_the_rights_that_it_knows() {
        assert_eq!([2, 3, 4, 5, 7].map(rights), [0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff]);
    }
}
