//! Mounting: the few kinds of mount that a sandbox is made of, each with the flags that it needs.
//!
//! Only `boot` and `pid1::shutdown` call it. Where to mount what is their business.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::pivot_root;

const NONE: Option<&str> = None;

/// Mounts a new file system of the given kind.
pub fn fresh(kind: &str, target: &Path, flags: MsFlags, options: &str) -> io::Result<()> {
    let options = (!options.is_empty()).then_some(options);
    mount(Some(kind), target, Some(kind), flags, options).map_err(io::Error::from)
}

/// Mounts a file system that is on a device.
pub fn device(source: &str, kind: &str, target: &Path, flags: MsFlags) -> io::Result<()> {
    mount(Some(source), target, Some(kind), flags, NONE).map_err(io::Error::from)
}

/// Moves a mount, with all below it, to another place.
pub fn move_to(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_MOVE, NONE).map_err(io::Error::from)
}

/// Makes the file system of this directory read-only for everybody who sees it, whether or not it is
/// mounted anywhere that we can name.
pub fn stop_writes(directory: BorrowedFd<'_>) -> io::Result<()> {
    // From `linux/mount.h`; the C library does not have them.
    const FSPICK_EMPTY_PATH: libc::c_uint = 8;
    const FSCONFIG_SET_FLAG: libc::c_uint = 0;
    const FSCONFIG_CMD_RECONFIGURE: libc::c_uint = 7;
    // SAFETY: takes a descriptor, an empty C string and flags.
    let picked = unsafe {
        libc::syscall(libc::SYS_fspick, directory.as_raw_fd(), c"".as_ptr(), FSPICK_EMPTY_PATH)
    };
    if picked < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor and nobody else knows it.
    let picked = unsafe { OwnedFd::from_raw_fd(picked as i32) };
    let none = std::ptr::null::<libc::c_char>();
    for (command, key) in [(FSCONFIG_SET_FLAG, c"ro".as_ptr()), (FSCONFIG_CMD_RECONFIGURE, none)] {
        // SAFETY: `key` is a C string or null, as the command wants it, and there is no value.
        let result =
            unsafe { libc::syscall(libc::SYS_fsconfig, picked.as_raw_fd(), command, key, none, 0) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes one file or directory, without the mounts below it, visible at another place.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE).map_err(io::Error::from)
}

/// The same with all mounts below it.
pub fn bind_tree(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
        .map_err(io::Error::from)
}

/// Keeps mounts made here from appearing elsewhere, and the reverse.
pub fn make_private(target: &Path) -> io::Result<()> {
    mount(NONE, target, NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE).map_err(io::Error::from)
}

/// The attributes that [`seal`] gives.
const SEALED: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV;

/// Makes the mount at `target` and all mounts below it read-only, and device nodes on them void.
pub fn seal(target: &Path) -> io::Result<()> {
    match set_attributes(target, SEALED) {
        // Before Linux 5.12 there is only the older call, which reaches one mount.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => seal_one(target),
        result => result,
    }
}

fn set_attributes(target: &Path, attr_set: u64) -> io::Result<()> {
    let target = CString::new(target.as_os_str().as_bytes())?;
    let attributes = libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: `target` is a C string, and the kernel reads one `mount_attr` of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The flags that the mount has already are kept, because in a user namespace the kernel refuses
/// to drop those that came from outside.
fn seal_one(target: &Path) -> io::Result<()> {
    let has = statvfs(target)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NODEV;
    for (given, kept) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
    ] {
        if has.contains(given) {
            flags |= kept;
        }
    }
    mount(NONE, target, NONE, flags, NONE).map_err(io::Error::from)
}

/// Makes the current directory, a mount, the root of this namespace; `old` is a directory below it
/// at which the old root then appears.
pub fn pivot_into_current_directory(old: &Path) -> io::Result<()> {
    pivot_root(Path::new("."), old).map_err(io::Error::from)
}

/// Takes away a mount and all below it now, and frees them when their last user is gone.
pub fn detach(target: &Path) -> io::Result<()> {
    umount2(target, MntFlags::MNT_DETACH).map_err(io::Error::from)
}
