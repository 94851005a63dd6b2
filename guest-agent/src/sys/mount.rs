//! Mounting: the few kinds of mount that a sandbox is made of, each with the flags that it needs.
//!
//! Only `boot` and `pid1::shutdown` call it. They decide where to mount what.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::pivot_root;

const NONE: Option<&str> = None;

/// Mounts a new file system of the given kind.
pub fn fresh(kind: &str, target: &Path, flags: MsFlags, options: &str) -> io::Result<()> {
    let options = (!options.is_empty()).then_some(options);
    mount(Some(kind), target, Some(kind), flags, options).map_err(io::Error::from)
}

/// Moves a mount, with all below it, to another place.
pub fn move_to(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_MOVE, NONE).map_err(io::Error::from)
}

/// Mounts a file system that is on a device.
pub fn device(
    source: &str,
    kind: &str,
    target: &Path,
    flags: MsFlags,
    options: Option<&str>,
) -> io::Result<()> {
    mount(Some(source), target, Some(kind), flags, options).map_err(io::Error::from)
}

// From `linux/mount.h`; the C library does not have them.
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSCONFIG_CMD_RECONFIGURE: libc::c_uint = 7;

/// Mounts the file system on a device without a place, and without set-id programs and devices. It is there as
/// long as somebody has the descriptor, or has put it at a place.
pub fn detached(device: &str, kind: &CStr, options: &[&CStr]) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    let device = CString::new(device)?;
    // SAFETY: takes a C string and flags.
    let opened = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    let system = made(opened)?;
    configure(&system, FSCONFIG_SET_STRING, Some(c"source"), Some(&device))?;
    for option in options {
        configure(&system, FSCONFIG_SET_FLAG, Some(option), None)?;
    }
    configure(&system, FSCONFIG_CMD_CREATE, None, None)?;
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    // SAFETY: takes a descriptor and flags.
    made(unsafe {
        libc::syscall(libc::SYS_fsmount, system.as_raw_fd(), FSMOUNT_CLOEXEC, attributes)
    })
}

/// Makes the file system of this directory read-only for everybody, whether or not it is mounted at a place
/// with a name.
pub fn stop_writes(directory: BorrowedFd<'_>) -> io::Result<()> {
    const FSPICK_EMPTY_PATH: libc::c_uint = 8;
    // SAFETY: takes a descriptor, an empty C string and flags.
    let picked = unsafe {
        libc::syscall(libc::SYS_fspick, directory.as_raw_fd(), c"".as_ptr(), FSPICK_EMPTY_PATH)
    };
    let system = made(picked)?;
    configure(&system, FSCONFIG_SET_FLAG, Some(c"ro"), None)?;
    configure(&system, FSCONFIG_CMD_RECONFIGURE, None, None)
}

/// One setting of a file system, or one order to it, as the command wants it.
fn configure(
    system: &OwnedFd,
    command: libc::c_uint,
    key: Option<&CStr>,
    value: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: key and value are C strings or null, and live until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            system.as_raw_fd(),
            command,
            pointer(key),
            pointer(value),
            0,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The descriptor that a call has made, or its error.
fn made(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
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

/// A copy of the mount at a directory, which belongs to no place. Nothing above the directory can be
/// reached through it.
pub fn copy(directory: &Path) -> io::Result<OwnedFd> {
    open_tree(directory, 0)
}

/// A copy of the mount at a directory, `whole` with all mounts below it, in which the owners of files
/// are mapped as the users of a user namespace are.
pub fn id_mapped(directory: &Path, users: BorrowedFd<'_>, whole: bool) -> io::Result<OwnedFd> {
    let recursive = if whole { libc::AT_RECURSIVE as libc::c_uint } else { 0 };
    let tree = open_tree(directory, recursive)?;
    map_owners(tree.as_fd(), users, recursive)?;
    Ok(tree)
}

/// Maps the owners of the files of a copy, and with `AT_RECURSIVE` of those mounted below it.
pub fn map_owners(
    tree: BorrowedFd<'_>,
    users: BorrowedFd<'_>,
    flags: libc::c_uint,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.as_raw_fd() as u64,
    };
    let flags = flags | libc::AT_EMPTY_PATH as libc::c_uint;
    set_attributes_of(tree.as_raw_fd(), c"", flags, &attributes)
}

/// Puts a copy at a place.
pub fn attach(tree: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    // From `linux/mount.h`.
    const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
    let target = CString::new(target.as_os_str().as_bytes())?;
    // SAFETY: takes descriptors, two C strings and flags.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn open_tree(directory: &Path, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // From `linux/mount.h`.
    const OPEN_TREE_CLONE: libc::c_uint = 1;
    let directory = CString::new(directory.as_os_str().as_bytes())?;
    let flags = flags | OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
    // SAFETY: takes a C string and flags.
    let tree =
        unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, directory.as_ptr(), flags) };
    made(tree)
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
    set_attributes_of(libc::AT_FDCWD, &target, libc::AT_RECURSIVE as libc::c_uint, &attributes)
}

fn set_attributes_of(
    directory: RawFd,
    path: &CStr,
    flags: libc::c_uint,
    attributes: &libc::mount_attr,
) -> io::Result<()> {
    // SAFETY: `path` is a C string, and the kernel reads one `mount_attr` of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory,
            path.as_ptr(),
            flags,
            ptr::from_ref(attributes),
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
    for (given, same) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
    ] {
        if has.contains(given) {
            flags |= same;
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
