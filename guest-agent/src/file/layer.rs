//! The writable layer of a sandbox as a whole: what its programs have added, changed and removed since the
//! boot. A fork gets it: `archive` sends it, `unpack` repeats it there.
//!
//! The directories of the layer are only an index. Content is read through the root, as programs see it, so
//! nothing here depends on how the kernel keeps it; a name that is in the layer and not in the root was
//! removed. On the way in everything is written through the root too. Files that each agent makes for
//! itself are left out both times, and so is what is mounted over the layer.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use protocol::Fault;

use super::info;
use super::names::Names;
use super::path::join;
use super::refusal::{refused, refused_unlinked};
use super::remove::remove_tree;
use crate::config::Layer;
use crate::lookup::{self, DIRECTORY_TO_READ, Refused, Way};
use crate::sys::xattr;

/// What the boot and the host make for each sandbox: its names, its name servers, whom it trusts.
const OWN: [&[u8]; 4] =
    [b"etc/hostname", b"etc/hosts", b"etc/resolv.conf", b"etc/ssl/burrow-authorities.pem"];

/// The parts of the layer besides that of the root, as the boot names them, and where programs see them. Only
/// the last has something below it.
const PARTS: [(&[u8], &[u8]); 4] =
    [(b"run", b"run"), (b"tmp", b"tmp"), (b"shm", b"dev/shm"), (b"etc-upper", b"etc")];
const LAYERED: &[u8] = b"etc-upper";
const UPPER: &[u8] = b"upper";
/// The root itself, where it is a patchwork.
const ROOT: &[u8] = b"root";

/// The attributes that belong to a file and not to how it is stored.
const XATTRS: [&[u8]; 3] = [b"user.", b"security.capability", b"system.posix_acl_"];

/// Names and values of the attributes of one file.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// One tree of the layer.
pub struct Part {
    /// As programs see it.
    pub directory: OwnedFd,
    pub index: Index,
    /// In the archive.
    pub path: Vec<u8>,
}

/// A directory of the layer.
pub struct Index {
    directory: OwnedFd,
    /// Whether programs see a directory of the root through it.
    has_lower: bool,
}

/// The parts of the layer, in the reverse order.
pub fn parts(layer: &Layer) -> Result<Vec<Part>, Fault> {
    let mut parts = Vec::new();
    let mut add = |name: &[u8], path: &[u8], has_lower| -> Result<(), Fault> {
        let refuse = |why: Refused| refused("archive", path, why);
        let index = match lookup::open_at(&layer.directory, name, DIRECTORY_TO_READ, Way::Beneath) {
            Err(Refused::Errno(Errno::ENOENT)) => return Ok(()),
            opened => opened.map_err(refuse)?,
        };
        let place = [b"/", path].concat();
        let directory = lookup::open(place.as_slice(), DIRECTORY_TO_READ, Way::Unlinked);
        let directory = match directory {
            // A program has replaced it, or it is bound as the host has it.
            Err(Refused::Errno(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)) => return Ok(()),
            opened => opened.map_err(refuse)?,
        };
        let index = Index { directory: index, has_lower };
        parts.push(Part { directory, index, path: path.to_vec() });
        Ok(())
    };
    for (name, path) in PARTS {
        add(name, path, name == LAYERED)?;
    }
    if layer.is_patchwork {
        let upper = lookup::open_at(&layer.directory, UPPER, DIRECTORY_TO_READ, Way::Beneath)
            .map_err(|why| refused("archive", UPPER, why))?;
        for name in names(&upper).map_err(|errno| refused("archive", UPPER, errno))? {
            add(&join(UPPER, &name), &name, true)?;
        }
        add(ROOT, b"", false)?;
    } else {
        add(UPPER, b"", true)?;
    }
    Ok(parts)
}

impl Index {
    pub fn listed(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Whether an entry is not the sandbox's own.
    pub fn leaves_out(path: &[u8]) -> bool {
        OWN.contains(&path)
    }

    /// A directory in this one.
    pub fn enter(&self, name: &[u8]) -> Result<Self, Refused> {
        let directory =
            lookup::open_at(&self.directory, name, DIRECTORY_TO_READ, Way::BeneathOnMount)?;
        Ok(Self { directory, has_lower: self.has_lower })
    }

    /// Whether all that programs see in the directory is of the layer. Then it may be in the place of one
    /// of the root, whose content must not appear in a fork.
    pub fn replaces(&self, seen: &OwnedFd) -> nix::Result<bool> {
        if !self.has_lower {
            return Ok(false);
        }
        let mut listing = Names::default();
        while let Some(name) = listing.next(seen)? {
            match info::status(&self.directory, name.bytes.as_slice(), false) {
                Err(Errno::ENOENT) => return Ok(false),
                found => drop(found?),
            }
        }
        Ok(true)
    }
}

/// All names in a directory.
fn names(directory: &OwnedFd) -> nix::Result<Vec<Vec<u8>>> {
    let (mut listing, mut names) = (Names::default(), Vec::new());
    while let Some(name) = listing.next(directory)? {
        names.push(name.bytes);
    }
    Ok(names)
}

/// The extended attributes of a file that belong to it.
pub fn xattrs(file: BorrowedFd<'_>) -> nix::Result<Xattrs> {
    let names = match xattr::list(file) {
        Err(Errno::ENOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(key) = CStr::from_bytes_with_nul(name) else { continue };
        if XATTRS.iter().any(|own| key.to_bytes().starts_with(own)) {
            match xattr::get(file, key) {
                // Removed since.
                Err(Errno::ENODATA) => {}
                value => found.push((key.to_bytes().to_vec(), value?)),
            }
        }
    }
    Ok(found)
}

/// Gives a new file its attributes.
pub fn set_xattrs(file: BorrowedFd<'_>, xattrs: Xattrs) -> nix::Result<()> {
    for (mut name, value) in xattrs {
        name.push(0);
        let name = CStr::from_bytes_with_nul(&name).map_err(|_| Errno::EINVAL)?;
        xattr::set(file, name, &value)?;
    }
    Ok(())
}

/// Removes what is at a path beneath the root, except files that the agent has made for this sandbox.
pub fn clear(root: &OwnedFd, path: &[u8]) -> Result<(), Fault> {
    if OWN.contains(&path) {
        return Ok(());
    }
    let below = join(path, b"");
    if OWN.iter().any(|own| own.starts_with(&below)) {
        match lookup::open_at(root, path, DIRECTORY_TO_READ, Way::Beneath) {
            Ok(directory) => {
                let names = names(&directory).map_err(|errno| refused("remove", path, errno))?;
                return names.iter().try_for_each(|name| clear(root, &join(path, name)));
            }
            Err(Refused::Errno(Errno::ENOENT)) => return Ok(()),
            // No directory.
            Err(Refused::Errno(Errno::ENOTDIR | Errno::ELOOP)) => {}
            Err(why) => return Err(refused_unlinked("remove", path, why)),
        }
    }
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b".".as_slice(), path),
    };
    let parent = match lookup::open_at(root, parent, DIRECTORY_TO_READ, Way::Beneath) {
        Err(Refused::Errno(Errno::ENOENT | Errno::ENOTDIR)) => return Ok(()),
        opened => opened.map_err(|why| refused_unlinked("remove", path, why))?,
    };
    let shown = Path::new(OsStr::from_bytes(path));
    match remove_tree(&parent, name, shown) {
        Err(fault) => match fault.errno.map(Errno::from_raw) {
            // Gone already, or something is mounted there, as it is in the other sandbox.
            Some(Errno::ENOENT | Errno::EXDEV | Errno::EBUSY) => Ok(()),
            _ => Err(fault),
        },
        removed => removed,
    }
}
