//! The handlers, driven by a client's end of real streams, on real directories.

mod archiving;
pub(crate) mod client;
mod reading;
mod shaping;
mod unpacking;
mod watching;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use protocol::Text;

/// A directory of one test, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("burrow-file-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        // Symlinks on the way would make the tests depend on where they run.
        Self(path.canonicalize().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same for a request.
    fn text(&self, name: &str) -> Text {
        text(&self.at(name))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.at(name)).unwrap()).unwrap()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(directory)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn text(path: &Path) -> Text {
    path.to_str().unwrap().into()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A file system of `bytes`, unmounted when it is dropped. None where there can be none.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path, bytes: u32) -> Option<Self> {
        use nix::mount::{MsFlags, mount};
        std::fs::create_dir_all(path).unwrap();
        let options = format!("size={bytes}");
        let flags = MsFlags::empty();
        match mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str())) {
            Ok(()) => Some(Self(path)),
            Err(errno) => {
                println!("skipped: cannot mount a small file system: {errno}");
                None
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        nix::mount::umount2(self.0, nix::mount::MntFlags::MNT_DETACH).ok();
    }
}
