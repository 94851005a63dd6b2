//! A small file system of a test's own, which can be filled and has room again.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::skip;

/// The allocation unit of the file system.
const PAGE_BYTES: u64 = 4096;

/// It is there as long as this lives.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, with a printed reason, where nothing can be mounted.
    pub fn mount_or_skip(at: &Path, kib: u32) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        let options = format!("size={kib}k,mode=700");
        let mounted = mount(Some("small"), at, Some("tmpfs"), MsFlags::empty(), Some(&*options));
        if let Err(error) = mounted {
            skip(&format!("no disk can be mounted here: {error}"));
            return None;
        }
        Some(Self(at.to_owned()))
    }

    /// Leaves no room at all.
    pub fn fill(&self) -> Filler {
        let path = self.0.join("filler");
        let mut size = 1 << 20;
        let mut file =
            OpenOptions::new().append(true).create(true).open(&path).expect("it is ours");
        while size > 0 {
            if file.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
        Filler(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(self.0.as_os_str().as_bytes(), MntFlags::MNT_DETACH).ok();
    }
}

/// The file that uses up the space.
pub struct Filler(PathBuf);

impl Filler {
    /// Gives so many pages back.
    pub fn leave(&self, pages: u64) {
        let file = File::options().write(true).open(&self.0).expect("it is ours");
        let bytes = file.metadata().expect("it is there").len();
        let whole = bytes / PAGE_BYTES * PAGE_BYTES;
        file.set_len(whole.saturating_sub(pages * PAGE_BYTES)).expect("it is ours");
    }

    /// Gives all of it back.
    pub fn remove(self) {
        fs::remove_file(self.0).expect("it is ours");
    }
}
