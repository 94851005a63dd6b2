//! A host of a test's own, for what people paste: whatever the test starts resolves names with the test's
//! [`Internet`] and trusts the authority of its web. What public registries serve there is in
//! `own_host/registries.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::internet::{Internet, NAME_SERVER};
use crate::{have_or_skip, images, skip};

/// Where Debian keeps whom a host trusts.
const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";
const RESOLVER: &str = "/etc/resolv.conf";

/// See the module's description.
pub struct OwnHost {
    internet: Internet,
    /// What covers files of this host.
    covers: TempDir,
}

impl OwnHost {
    /// Goes there with the calling thread, which stays; without what that takes, the test says that it
    /// does nothing.
    ///
    /// # Panics
    /// When it cannot be made although there is all that it takes.
    pub fn or_skip() -> Option<Self> {
        if let Some(missing) =
            [TRUSTED, RESOLVER].into_iter().find(|path| !Path::new(path).exists())
        {
            skip(&format!("there is no {missing} here"));
            return None;
        }
        let internet = Internet::or_skip()?;
        let host =
            Self { internet, covers: TempDir::with_prefix("burrow-host-").expect("a directory") };
        let trusted = fs::read(TRUSTED).expect("it is there");
        let trusted = [&trusted[..], b"\n", &host.internet.authority()].concat();
        unshare(CloneFlags::CLONE_NEWNS).expect("root may");
        let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(none, "/", none, private, none).expect("root may");
        host.cover(TRUSTED, &trusted);
        host.cover(RESOLVER, format!("nameserver {NAME_SERVER}\n").as_bytes());
        Some(host)
    }

    /// Puts a file over one of this host.
    fn cover(&self, path: &str, content: &[u8]) {
        let cover = self.covers.path().join(path.rsplit('/').next().expect("a name"));
        fs::write(&cover, content).expect("a directory of ours");
        let none = None::<&str>;
        mount(Some(&cover), path, none, MsFlags::MS_BIND, none).expect("root may");
    }

    /// Serves what public registries do, an image of Python included. False, with a reason, when there is
    /// nothing to make it of.
    ///
    /// # Panics
    /// When it cannot be made although there is.
    pub fn serve_registries(&self, with_image: bool) -> bool {
        self.serve(with_image, Path::new(""))
    }

    /// The same, with the wheels of a directory as packages of `PyPI`.
    ///
    /// # Panics
    /// When it cannot be made although there is.
    pub fn serve_wheels(&self, wheels: &Path) -> bool {
        self.serve(false, wheels)
    }

    fn serve(&self, with_image: bool, wheels: &Path) -> bool {
        let busybox = if with_image {
            let Some(busybox) =
                images::busybox().filter(|_| ["pip", "ldd"].into_iter().all(have_or_skip))
            else {
                return false;
            };
            busybox
        } else {
            PathBuf::new()
        };
        let made = Command::new("python3")
            .args(["-c", include_str!("own_host/registries.py")])
            .args([self.internet.served(), PathBuf::from(TRUSTED), busybox, wheels.to_owned()])
            .output()
            .expect("python3 runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        true
    }

    /// Its network.
    pub fn internet(&self) -> &Internet {
        &self.internet
    }
}
