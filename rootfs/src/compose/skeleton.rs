//! The content of every image, whatever its packages: directories, accounts, a few files, the
//! agent.

use std::collections::BTreeMap;

use super::{MERGED, owned};
use crate::tree::{Content, Kind, Metadata, Node, Tree, TreeError};

/// The agent's path.
pub const AGENT_PATH: &str = "usr/sbin/guest-agent";

/// The init of a machine that boots the image, unless a package brings its own.
pub const INIT_PATH: &str = "usr/sbin/init";

/// The account that programs run as when they need not be root.
const USER: (&str, u32) = ("user", 1000);

/// Directories and their modes. The first are the places where the agent mounts things.
const DIRECTORIES: [(&str, u16); 27] = [
    ("dev", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("tmp", 0o1777),
    ("workspace", 0o755),
    ("mnt", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("opt", 0o755),
    ("root", 0o700),
    ("srv", 0o755),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/sbin", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib64", 0o755),
    ("usr/local", 0o755),
    ("usr/local/bin", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
    ("etc/ssl", 0o755),
];

/// Links that programs expect.
const LINKS: [(&str, &str); 3] =
    [("etc/mtab", "/proc/mounts"), ("var/run", "/run"), ("var/lock", "/run/lock")];

/// Accounts: those that files of packages belong to, and ours.
const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";
const GROUP: &str = "\
root:x:0:
daemon:x:1:
tty:x:5:
disk:x:6:
mail:x:8:
shadow:x:42:
utmp:x:43:
staff:x:50:
user:x:1000:
nogroup:x:65534:
";
/// No password is valid for any account.
const SHADOW: &str = "\
root:*:19000:0:99999:7:::
daemon:*:19000:0:99999:7:::
user:*:19000:0:99999:7:::
nobody:*:19000:0:99999:7:::
";

const PROFILE: &str = "\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LANG=${LANG:-C.UTF-8}
[ -n \"$BASH_VERSION\" ] && [ -f ~/.bashrc ] && . ~/.bashrc
";

/// Written whether or not a package has them: path, mode, content.
const FILES: [(&str, u16, &str); 12] = [
    ("etc/passwd", 0o644, PASSWD),
    ("etc/group", 0o644, GROUP),
    ("etc/shadow", 0o600, SHADOW),
    ("etc/hostname", 0o644, "sandbox\n"),
    ("etc/hosts", 0o644, "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    ("etc/resolv.conf", 0o644, ""),
    ("etc/machine-id", 0o444, ""),
    ("etc/fstab", 0o644, ""),
    ("etc/default/locale", 0o644, "LANG=C.UTF-8\n"),
    ("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
    ("etc/profile", 0o644, PROFILE),
    ("etc/shells", 0o644, "/bin/sh\n/bin/bash\n"),
];

/// Written when no package has them.
const FALLBACKS: [(&str, u16, &str); 1] =
    [("etc/os-release", 0o644, "PRETTY_NAME=\"Burrow\"\nNAME=\"Burrow\"\nID=burrow\n")];

/// The directories, before any package.
pub(super) fn directories(mtime_s: u64) -> Result<Tree, TreeError> {
    let mut tree = Tree::new(Metadata::root(0o755, mtime_s));
    for (path, mode) in DIRECTORIES {
        tree.insert(path.as_bytes(), owned(Kind::Directory(BTreeMap::new()), mode, mtime_s))?;
    }
    for name in MERGED {
        let target = format!("usr/{name}").into_bytes();
        tree.insert(name.as_bytes(), owned(Kind::Symlink(target), 0o777, mtime_s))?;
    }
    for (path, target) in LINKS {
        tree.insert(path.as_bytes(), owned(Kind::Symlink(target.into()), 0o777, mtime_s))?;
    }
    Ok(tree)
}

/// The files, after all packages.
pub(super) fn files(tree: &mut Tree, agent: Content, mtime_s: u64) -> Result<(), TreeError> {
    let text = |text: &str| Kind::File(Content::from_bytes(text));
    for (path, mode, content) in FILES {
        tree.insert(path.as_bytes(), owned(text(content), mode, mtime_s))?;
    }
    for (path, mode, content) in FALLBACKS {
        if tree.find(path.as_bytes()).is_none() {
            tree.insert(path.as_bytes(), owned(text(content), mode, mtime_s))?;
        }
    }
    let (name, id) = USER;
    let home = Metadata { mode: 0o755, uid: id, gid: id, mtime_s };
    let home = Node::new(home, Kind::Directory(BTreeMap::new()));
    tree.insert(format!("home/{name}").as_bytes(), home)?;
    tree.insert(AGENT_PATH.as_bytes(), owned(Kind::File(agent), 0o755, mtime_s))?;
    if tree.find(INIT_PATH.as_bytes()).is_none() {
        let init = Kind::Symlink(b"guest-agent".to_vec());
        tree.insert(INIT_PATH.as_bytes(), owned(init, 0o777, mtime_s))?;
    }
    Ok(())
}
