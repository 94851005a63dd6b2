//! The rule for every path that the agent opens, as the kernel carries it out; and the agent's own
//! procfs.
//!
//! `lookup` has the forms of it that the parts use, and `sys::spawn` applies it in a child that has
//! not executed yet: [`open`] allocates nothing and takes no lock. Nothing else calls `openat2`.
//!
//! The agent has more rights than the programs of its sandbox, which can pass it any path, or plant
//! any symlink. Two things would lend them its rights. A link of `/proc` such as `/proc/1/fd/4` or
//! `/proc/1/root`, a *magic link*, is no path: it leads to a process's open file. A file of a
//! kernel file system is no ordinary file: `/proc/1/mem` is the agent's memory, `cgroup.kill` ends
//! the processes of a group.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open as open_plainly, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, makedev};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::read;

/// Why the agent does not open a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{}", .0.desc())]
    Errno(Errno),
    #[error("it is on a kernel file system ({0})")]
    KernelFileSystem(&'static str),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Refused {
    /// As a number, for code that only reports numbers: the kernel returns `EXDEV` for a path that
    /// leaves the allowed file systems.
    pub fn errno(self) -> Errno {
        match self {
            Self::Errno(errno) => errno,
            Self::KernelFileSystem(_) => Errno::EXDEV,
        }
    }
}

/// Resolves a path in one step of the kernel, through no magic link, and opens the result unless it
/// is on a kernel file system. The descriptor is what was checked.
pub fn open<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    flags: OFlag,
    how: ResolveFlag,
) -> Result<OwnedFd, Refused> {
    let how = how | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let opened =
        openat2(directory, path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(how))?;
    match kernel_file_system(&opened)? {
        Some(name) => Err(Refused::KernelFileSystem(name)),
        None => Ok(opened),
    }
}

/// The name of the file system that a file is on, if it is one of the kernel's own.
fn kernel_file_system(file: impl AsFd) -> nix::Result<Option<&'static str>> {
    // Signed in one C library and unsigned in another; the numbers have 32 bits.
    let magic = fstatfs(file)?.filesystem_type().0 as u32;
    Ok(KERNEL_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name))
}

/// File systems whose files are made up by the kernel, by the numbers in `linux/magic.h`. To read or
/// write one asks something of the kernel, which judges by who asks.
const KERNEL_FILE_SYSTEMS: [(u32, &str); 30] = [
    // Processes: their memory, their open files, their permissions.
    (0x0000_9fa0, "proc"),
    (0x6e73_6673, "nsfs"),
    (0x5049_4446, "pidfs"),
    // Limits and the end of processes.
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x0765_5821, "resctrl"),
    // Devices, and switches of the whole kernel.
    (0x6265_6572, "sysfs"),
    (0x6265_6570, "configfs"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x0000_9fa2, "usbfs"),
    (0xabba_1974, "xenfs"),
    (0x6c6f_6f70, "binder"),
    // Tracing and reporting.
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0xcafe_4a11, "bpf"),
    // Access control.
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    // Conversations with it, or with a program through it.
    (0x6573_5543, "fusectl"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0x1980_0202, "mqueue"),
    (0x0000_1cd1, "devpts"),
    (0x534f_434b, "sockfs"),
    (0x5049_5045, "pipefs"),
    (0x0904_1934, "anon_inodefs"),
    // A look at it may mount something.
    (0x0000_0187, "autofs"),
];

/// The procfs of the agent's own namespace. It is opened once, before any program could replace it,
/// so that what is read there comes from the kernel.
static PROC: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// `None` if no procfs could be mounted.
pub fn proc() -> Option<BorrowedFd<'static>> {
    let held = PROC.get_or_init(|| {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open_plainly("/proc", flags, Mode::empty()).ok()?;
        (fstatfs(&proc).ok()?.filesystem_type() == PROC_SUPER_MAGIC).then_some(proc)
    });
    held.as_ref().map(AsFd::as_fd)
}

/// Opens a file of the agent's procfs whose name the agent has made.
pub fn open_in_proc<P: NixPath + ?Sized>(name: &P, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let flags = flags | OFlag::O_CLOEXEC;
    openat2(proc().ok_or(Errno::ENOENT)?, name, OpenHow::new().flags(flags).resolve(how))
}

/// Reopens the file of one of our descriptors with other flags. `None` without a procfs, which has
/// the only name of such a file.
pub fn reopen(found: impl AsFd, flags: OFlag) -> Option<nix::Result<OwnedFd>> {
    let name = name_in_proc(&found);
    Some(openat(proc()?, until_nul(&name), flags | OFlag::O_CLOEXEC, Mode::empty()))
}

fn until_nul(text: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(text).unwrap_or_default()
}

/// The name of an open descriptor in the agent's procfs. Allocates nothing.
fn name_in_proc(found: impl AsFd) -> [u8; 24] {
    let mut name = *b"self/fd/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let (mut rest, mut place) = (found.as_fd().as_raw_fd().unsigned_abs(), 8);
    // A number has at most ten digits.
    while rest > 0 || place == 8 {
        name.copy_within(8..22, 9);
        name[8] = b'0' + (rest % 10) as u8;
        (rest, place) = (rest / 10, place + 1);
    }
    name
}

/// Whether a regular file begins with these bytes. Allocates nothing; false without a procfs.
pub fn begins_with<const N: usize>(found: &OwnedFd, bytes: [u8; N]) -> nix::Result<bool> {
    if fstat(found)?.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
        return Err(Errno::EACCES);
    }
    let mut begin = [0; N];
    let Some(file) = reopen(found, OFlag::O_RDONLY) else { return Ok(false) };
    Ok(read(file?, &mut begin)? == N && begin == bytes)
}

/// The path of an open file, without symlinks. Allocates nothing.
pub fn own_path<'a>(
    found: &OwnedFd,
    place: &'a mut [u8; libc::PATH_MAX as usize],
) -> nix::Result<&'a CStr> {
    let proc = proc().ok_or(Errno::ENOENT)?;
    let name = name_in_proc(found);
    let room = place.len() - 1;
    // SAFETY: the name is a C string, and the kernel writes no more bytes than there is room for.
    let count = Errno::result(unsafe {
        libc::readlinkat(
            proc.as_raw_fd(),
            until_nul(&name).as_ptr(),
            place.as_mut_ptr().cast(),
            room,
        )
    })?;
    // A path that fills the buffer may be truncated.
    if count as usize == room { Err(Errno::ENAMETOOLONG) } else { Ok(until_nul(place)) }
}

/// Opens the device of this number and nothing else. The number is all that matters: a terminal's is
/// on a file system of the kernel's.
pub fn open_device(path: &CStr, number: (u64, u64), flags: OFlag) -> nix::Result<OwnedFd> {
    let find = |flags: OFlag| {
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
        openat2(AT_FDCWD, path, how.resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS))
    };
    let found = find(OFlag::O_PATH)?;
    check_device(&found, number)?;
    if let Some(device) = reopen(&found, flags) {
        return device;
    }
    let device = find(flags | OFlag::O_NONBLOCK)?;
    check_device(&device, number)?;
    Ok(device)
}

fn check_device(file: &OwnedFd, (wanted_major, wanted_minor): (u64, u64)) -> nix::Result<()> {
    let status = fstat(file)?;
    let is_device = status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits();
    let is_it = status.st_rdev == makedev(wanted_major, wanted_minor);
    if is_device && is_it { Ok(()) } else { Err(Errno::ENODEV) }
}
