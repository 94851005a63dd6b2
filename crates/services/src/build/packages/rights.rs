//! Takes from a directory what would be a right on the host: programs of packages were root of a sandbox
//! when they filled it, and its files belong to this host's user.
//!
//! `cache` calls it when the sandbox is over, before anybody else can enter the directory. It follows no link.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::lremovexattr;
use rustix::io::Errno;

/// The bits that make a program another user's, or another group's.
const SET_ID: u32 = 0o6000;
/// The attribute that gives a program capabilities.
const CAPABILITIES: &str = "security.capability";

/// Clears set-id bits and capabilities in the tree, and removes all that is neither a file, a directory nor a
/// symlink.
pub(super) fn take_rights_away(directory: &Path) -> io::Result<()> {
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let path = entry.path();
            let metadata = entry.metadata()?;
            let kind = metadata.file_type();
            if kind.is_symlink() {
                continue;
            }
            if !kind.is_dir() && !kind.is_file() {
                fs::remove_file(&path)?;
                continue;
            }
            let mode = metadata.permissions().mode();
            if mode & SET_ID != 0 {
                fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777 & !SET_ID))?;
            }
            match lremovexattr(&path, CAPABILITIES) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
            if kind.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

    use super::*;

    #[test]
    fn what_a_sandbox_has_written_gives_nobody_rights_on_the_host() {
        let top = std::env::temp_dir().join(format!("burrow-rights-{}", std::process::id()));
        let directory = top.join("filled");
        fs::create_dir_all(directory.join("bin")).unwrap();
        let (program, outside) = (directory.join("bin/program"), top.join("outside"));
        for path in [&program, &outside] {
            fs::write(path, "").unwrap();
            // The second version of the attribute: every capability, for everybody who executes it.
            let all = [[1, 0, 0, 2], [255; 4], [0; 4], [255; 4], [0; 4]].concat();
            let set = lsetxattr(path, CAPABILITIES, &all, XattrFlags::empty());
            assert_eq!(set.is_ok(), nix::unistd::geteuid().is_root(), "{set:?}");
            fs::set_permissions(path, Permissions::from_mode(0o6755)).unwrap();
        }
        fs::set_permissions(directory.join("bin"), Permissions::from_mode(0o2755)).unwrap();
        let _socket = UnixListener::bind(directory.join("socket")).unwrap();
        symlink(&outside, directory.join("link")).unwrap();
        take_rights_away(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&program), mode(&directory.join("bin"))), (0o755, 0o755));
        assert_eq!(lgetxattr(&program, CAPABILITIES, &mut [0; 20]), Err(Errno::NODATA));
        assert_eq!(mode(&outside), 0o6755, "a link was followed");
        assert!(!directory.join("socket").exists() && directory.join("link").is_symlink());
        fs::remove_dir_all(top).unwrap();
    }
}
