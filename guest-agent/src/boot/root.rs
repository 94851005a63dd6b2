//! The root file system of a sandbox: a private writable layer over a directory of the host.
//!
//! A tmpfs of the sandbox's scratch size, or an ext4 file system that the host has mounted (`layer`), holds
//! everything writable. It becomes the root first, with the host's tree below it, so that no directory
//! of the host is needed as a mount point. The overlay is mounted in it and completed, becomes the root
//! in turn, and the host's tree is detached.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::MsFlags;
use nix::sys::stat::Mode;
use nix::unistd::chdir;
use protocol::boot::{BootConfig, HOME};

use super::overlay::{UPPER, WORK, make_directory, overlay};
use super::{BootError, Outcome, Stage, ids, patchwork};
use crate::sys::{mount, mountinfo};

/// Where the host's tree is while the scratch file system is the root.
const HOST: &str = "/host";
/// Where the lower layer is mounted while the overlay is made from it.
const LOWER: &str = "/lower";
/// Where the sandbox's root is built.
pub(super) const ROOT: &str = "/root";
/// The writable places that begin empty, over the host's own root. They share the scratch file system,
/// and so its size.
pub(super) const RUN: &str = "/run";
pub(super) const TMP: &str = "/tmp";
pub(super) const SHARED_MEMORY: &str = "/shm";

/// All of the above with their modes.
pub(super) const DIRECTORIES: [(&str, u32); 8] = [
    (HOST, 0o755),
    (LOWER, 0o755),
    (UPPER, 0o755),
    (WORK, 0o755),
    (ROOT, 0o755),
    (RUN, 0o755),
    (TMP, 0o1777),
    (SHARED_MEMORY, 0o1777),
];

/// A scratch file system has neither set-uid programs nor devices.
pub(super) const SCRATCH_FLAGS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// Directories of the host that exist everywhere, of which one is covered for a moment.
pub(super) const MOMENTARY_MOUNT_POINTS: [&str; 3] = ["/tmp", "/run", "/mnt"];

/// The places below a root where a separate file system is part of it. Others, such as `/mnt` and
/// `/media`, hold what a sandbox has not requested.
const PARTS_OF_A_ROOT: [&str; 12] =
    ["bin", "etc", "home", "lib", "lib32", "lib64", "nix", "opt", "root", "sbin", "usr", "var"];

/// The part in which a sandbox has files of its own: its names and name servers, and whom it trusts.
const ETC: &str = "etc";
/// The writable layer over it, where it is a separate file system.
const ETC_UPPER: &str = "/etc-upper";
const ETC_WORK: &str = "/etc-work";

/// Separate file systems that are bound into a root; a machine with containers may have hundreds.
const OTHER_FILE_SYSTEMS_MAX: usize = 64;

pub(super) fn make_mounts_private(_: &mut Stage) -> Result<Outcome, BootError> {
    mount::make_private(Path::new("/")).map_err(BootError::call("making the mounts private"))?;
    Ok(Outcome::Done)
}

/// Opens the lower layer by the name that it has now. It must happen in the new namespace: a
/// directory of another one's mount cannot be a layer.
pub(super) fn open_lower(stage: &mut Stage) -> Result<Outcome, BootError> {
    let path = Path::new(&stage.config.root);
    let refused = |source: io::Error| BootError::Root { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(refused)?;
    let lower = open_directory(&real).map_err(|errno| refused(errno.into()))?;
    stage.lower = Some(lower);
    stage.lower_path = below_host(&real);
    if let Some(ids) = &stage.ids {
        match mount::id_mapped(&real, ids.user(), false) {
            Ok(mapped) => stage.mapped = Some(mapped),
            Err(error) => ids::give_up(stage, "mapping the owners of the root's files", error)?,
        }
    }
    Ok(Outcome::Done)
}

fn open_directory(path: &Path) -> nix::Result<OwnedFd> {
    open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Where an absolute path of the host is while the scratch file system is the root.
pub(super) fn below_host(path: &Path) -> PathBuf {
    Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path))
}

/// Mounts a scratch file system in memory.
pub(super) fn mount_memory(bytes: u64, point: &Path) -> io::Result<()> {
    // A size of 0 would mean no limit; without a size it is half of the memory.
    let size = if bytes == 0 { String::new() } else { format!("size={bytes},") };
    mount::fresh("tmpfs", point, SCRATCH_FLAGS, &format!("{size}mode=755"))
}

/// Mounts the scratch file system and makes it the root.
pub(super) fn mount_scratch(stage: &mut Stage) -> Result<Outcome, BootError> {
    let BootConfig { scratch_bytes, scratch_mount, .. } = &stage.config;
    let layer = if scratch_mount.is_empty() {
        None
    } else {
        let path = Path::new(scratch_mount);
        Some(open_directory(path).map_err(BootError::path("opening the writable layer", path))?)
    };
    let attempt = |name: &'static str| {
        let point = Path::new(name);
        match &layer {
            Some(layer) => mount::attach(layer.as_fd(), point),
            None => mount_memory(*scratch_bytes, point),
        }
        .map(|()| name)
    };
    let [first, others @ ..] = MOMENTARY_MOUNT_POINTS;
    let point = others
        .into_iter()
        .fold(attempt(first), |mounted, other| mounted.or_else(|_| attempt(other)))
        .map_err(BootError::call("mounting the scratch file system"))?;
    chdir(point).map_err(BootError::path("entering", point))?;
    let outcome = enter_scratch(stage)?;
    // Without it the sandbox cannot be forked, and works.
    stage.scratch = open_directory(Path::new("/")).ok();
    Ok(outcome)
}

/// Makes the directories of the scratch file system, which is the current directory, and makes it the
/// root.
pub(super) fn enter_scratch(stage: &mut Stage) -> Result<Outcome, BootError> {
    for (directory, mode) in DIRECTORIES {
        make_directory(relative(directory), mode)?;
    }
    mount::pivot_into_current_directory(Path::new("host"))
        .map_err(BootError::call("making the scratch file system the root"))?;
    chdir("/").map_err(BootError::path("entering", "/"))?;
    stage.root = ROOT.into();
    Ok(Outcome::Done)
}

/// Mounts the overlay for the future root.
pub(super) fn mount_overlay(stage: &mut Stage) -> Result<Outcome, BootError> {
    let is_mapped = match over_mapped(stage) {
        Ok(is_mapped) => is_mapped,
        Err(error) => {
            ids::give_up(stage, "mounting an overlay over mapped owners", error)?;
            own_scratch()?;
            false
        }
    };
    let lower = stage.lower.as_ref().expect("`open-root` is fatal and comes before");
    let attempt = if is_mapped { Ok(()) } else { over(lower, stage) };
    match attempt {
        Ok(()) => {}
        // A directory with other mounts of the host below it cannot be a layer in a user namespace:
        // the layer would show what those mounts cover. Its parts can.
        Err(error) if stage.in_user_namespace && error.raw_os_error() == Some(libc::EINVAL) => {
            patchwork::mount(stage)?;
            stage.is_patchwork = true;
        }
        Err(source) => {
            return Err(BootError::Overlay { root: stage.config.root.clone().into(), source });
        }
    }
    clear_places(&stage.root)?;
    // The root directory of the lower layer may be closed to others; a sandbox's is not.
    std::fs::set_permissions(&stage.root, Permissions::from_mode(0o755))
        .map_err(BootError::path("opening to everyone", &stage.root))?;
    Ok(Outcome::Done)
}

/// Gives the scratch file system to root, because the users that it was made for were given up. The host's
/// root is mounted in it and is left alone.
fn own_scratch() -> Result<(), BootError> {
    let made = DIRECTORIES.iter().map(|(directory, _)| *directory).filter(|made| *made != HOST);
    for directory in made.chain(["/"]) {
        chown(directory, Some(0), Some(0)).map_err(BootError::path("owning", directory))?;
    }
    Ok(())
}

/// Mounts the overlay over the layer whose owners are mapped, if there is one. A layer must be mounted
/// somewhere while the overlay is made, and is not afterwards.
fn over_mapped(stage: &mut Stage) -> io::Result<bool> {
    let Some(mapped) = stage.mapped.take() else { return Ok(false) };
    at_lower(&mapped, |lower| over(lower, stage)).map(|()| true)
}

/// Mounts a tree, for as long as a layer is made of it.
fn at_lower(tree: &OwnedFd, make: impl FnOnce(&OwnedFd) -> io::Result<()>) -> io::Result<()> {
    let place = Path::new(LOWER);
    mount::attach(tree.as_fd(), place)?;
    let made = open_directory(place).map_err(io::Error::from).and_then(|lower| make(&lower));
    mount::detach(place)?;
    made
}

fn over(lower: &OwnedFd, stage: &Stage) -> io::Result<()> {
    overlay(lower, Path::new(UPPER), Path::new(WORK), &stage.root, stage)
}

/// Removes files from places that must be directories to mount on. A symlink of an image could lead out
/// of the root, because the host's tree is still there.
fn clear_places(root: &Path) -> Result<(), BootError> {
    for name in ["dev", "proc", "sys"] {
        let place = root.join(name);
        match std::fs::remove_file(&place) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EISDIR)) => {
                return Err(BootError::path("replacing", place)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// An overlay shows one file system. What else is mounted within the root is bound into place,
/// read-only, but for `/etc`.
pub(super) fn bind_other_file_systems(stage: &mut Stage) -> Result<Outcome, BootError> {
    if stage.is_patchwork {
        return Ok(Outcome::Done);
    }
    let table = Path::new(HOST).join("proc/self/mountinfo");
    let mounts = std::fs::read(&table).map_err(BootError::path("reading", &table))?;
    let mounts = mountinfo::parse(&mounts);
    let mut bound: Vec<&Path> = Vec::new();
    for mount in &mounts {
        let Ok(inner) = mount.point.strip_prefix(&stage.lower_path) else { continue };
        let part = inner.iter().next().and_then(|part| part.to_str());
        let belongs = part.is_some_and(|part| PARTS_OF_A_ROOT.contains(&part));
        // In containers these are mounts of their own. The sandbox gets others, which change later.
        let is_replaced =
            matches!(inner.to_str(), Some("etc/hosts" | "etc/hostname" | "etc/resolv.conf"));
        // Content of a tree that is bound already has come with it.
        if !belongs || is_replaced || bound.iter().any(|tree| inner.starts_with(tree)) {
            continue;
        }
        if bound.len() == OTHER_FILE_SYSTEMS_MAX {
            break;
        }
        let target = stage.root.join(inner);
        // A mount that another has covered since cannot be reached, nor can its point.
        if !target.exists() {
            continue;
        }
        if inner == Path::new(ETC) && layer_etc(stage, &mount.point, &target).is_ok() {
            // What is mounted in it follows, as mounts of their own.
            continue;
        }
        bind_mapped(stage, &mount.point, &target)
            .map_err(BootError::path("binding", &mount.point))?;
        mount::seal(&target).map_err(BootError::path("making read-only", &target))?;
        bound.push(inner);
    }
    Ok(Outcome::Done)
}

/// Puts a writable layer over the host's `/etc`, in which a sandbox has files of its own.
fn layer_etc(stage: &Stage, source: &Path, target: &Path) -> Result<(), BootError> {
    let (upper, work) = (Path::new(ETC_UPPER), Path::new(ETC_WORK));
    make_directory(upper, 0o755)?;
    make_directory(work, 0o755)?;
    let layer = |lower: &OwnedFd| overlay(lower, upper, work, target, stage);
    let layered = match &stage.ids {
        Some(ids) => {
            mount::id_mapped(source, ids.user(), false).and_then(|mapped| at_lower(&mapped, layer))
        }
        None => open_directory(source).map_err(io::Error::from).and_then(|lower| layer(&lower)),
    };
    layered.map_err(BootError::path("mounting", target))
}

/// Binds a tree with its owners mapped, or with the host's owners if its file system cannot map them: then
/// they appear as nobody in the sandbox.
fn bind_mapped(stage: &Stage, source: &Path, target: &Path) -> io::Result<()> {
    let mapped = stage.ids.as_ref().map(|ids| mount::id_mapped(source, ids.user(), true));
    match mapped {
        Some(Ok(tree)) => mount::attach(tree.as_fd(), target),
        Some(Err(_)) | None => mount::bind_tree(source, target),
    }
}

/// One of the scratch file system's directories, seen from there while it is not the root.
pub(super) fn relative(directory: &str) -> &Path {
    Path::new(directory.trim_start_matches('/'))
}

/// Provides `/run`, `/tmp` and the default working directory. Those of an image stay as they are, because
/// programs may rely on them. Over the host's own root they begin empty, because a sandbox must not see the
/// host's.
pub(super) fn mount_run_and_tmp(stage: &mut Stage) -> Result<Outcome, BootError> {
    let (run, tmp) = (stage.root.join("run"), stage.root.join("tmp"));
    if stage.machine.is_none() && stage.config.root == "/" {
        // The scratch mount's own flags, no set-uid and no devices, come with the bind.
        bind_new(RUN, &run, 0o755)?;
        bind_new(TMP, &tmp, 0o1777)?;
        make_directory(&run.join("lock"), 0o1777)?;
    } else {
        make_directory(&run, 0o755)?;
        make_directory(&tmp, 0o1777)?;
    }
    // The working directory of programs, which must not write in `/`.
    make_directory(&stage.root.join(relative(HOME)), 0o755)?;
    Ok(Outcome::Done)
}

/// Makes the overlay the root and detaches everything else.
pub(super) fn pivot(stage: &mut Stage) -> Result<Outcome, BootError> {
    stage.lower = None;
    chdir(&stage.root).map_err(BootError::path("entering", &stage.root))?;
    // The old root is put over the new one, which needs no directory for it, and detached again.
    mount::pivot_into_current_directory(Path::new("."))
        .map_err(BootError::call("making the overlay the root"))?;
    mount::detach(Path::new(".")).map_err(BootError::call("letting go of the host's files"))?;
    chdir("/").map_err(BootError::path("entering", "/"))?;
    stage.root = "/".into();
    Ok(Outcome::Done)
}

/// Hides paths from programs: a file behind the empty device, a directory behind an empty one. A path that
/// does not exist needs no hiding.
pub(super) fn hide(stage: &mut Stage) -> Result<Outcome, BootError> {
    if stage.config.hide.is_empty() {
        return Ok(Outcome::Done);
    }
    for path in stage.config.hide.iter().map(Path::new) {
        cover(path)?;
    }
    Ok(Outcome::Done)
}

pub(super) fn cover(path: &Path) -> Result<(), BootError> {
    let covered = match path.metadata() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => {
            let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount::fresh("tmpfs", path, flags, "size=4k,mode=555")
        }
        Ok(_) => mount::bind(Path::new("/dev/null"), path),
    };
    covered.map_err(BootError::path("hiding", path))
}

/// Mounts a new file system of this kind, and makes its directory if needed.
pub(super) fn mount_new(
    kind: &str,
    point: &Path,
    mode: u32,
    flags: MsFlags,
    options: &str,
) -> Result<(), BootError> {
    make_directory(point, mode)?;
    mount::fresh(kind, point, flags, options).map_err(BootError::path("mounting", point))
}

/// Makes a directory visible at another place, and that place where there is none.
pub(super) fn bind_new(source: &str, point: &Path, mode: u32) -> Result<(), BootError> {
    make_directory(point, mode)?;
    mount::bind(Path::new(source), point).map_err(BootError::path("mounting", point))
}
