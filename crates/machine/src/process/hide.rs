//! Credentials that programs in a sandbox over the host's own files must not see.
//!
//! A sandbox reads the host's files unless they are named here. The list protects against accidents
//! (a program that tidies up `~/.aws`, an agent that reads keys because it can). It is not a wall:
//! the process machine shares the host's kernel. A sandbox that needs a wall gets its own image or
//! a real machine.

use std::path::{Path, PathBuf};

use host::names::existing_below;
use host::places;

/// Credentials below a home directory: files that let their reader act as this person elsewhere.
pub const HIDDEN_IN_HOME: [&str; 21] = [
    ".ssh",
    ".gnupg",
    ".password-store",
    ".local/share/keyrings",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/doctl",
    ".kube",
    ".docker",
    ".config/containers/auth.json",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/op",
    ".terraform.d/credentials.tfrc.json",
];

/// Credentials of the host itself, and the sockets that command it.
pub const HIDDEN_OF_SYSTEM: [&str; 14] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ssh/ssh_host_dsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/var/lib/docker",
    "/var/lib/kubelet",
];

/// The list for a sandbox that sees the host's files: the places above, in the homes of those whose
/// files it may be able to read. Paths that do not exist hide themselves.
pub fn hidden_on_host(homes: &[PathBuf]) -> Vec<PathBuf> {
    let of_system = HIDDEN_OF_SYSTEM.iter().map(PathBuf::from).filter(|path| exists(path));
    let in_homes = homes.iter().flat_map(|home| existing_below(home, &HIDDEN_IN_HOME));
    of_system.chain(in_homes).collect()
}

/// The directories of the bridges that run at this moment, as a sandbox over `root` sees them.
pub fn running_bridges(root: &Path) -> Vec<String> {
    all_seen_through(root, &places::of_running_bridges())
}

/// Where these paths of the host and the targets of their symlinks are visible in a sandbox over
/// `root`: a symlink must not leave its target in sight.
pub fn all_seen_through<'a>(
    root: &Path,
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> Vec<String> {
    let with_target = |path: &PathBuf| [Some(path.clone()), path.canonicalize().ok()];
    let all = paths.into_iter().flat_map(with_target).flatten();
    all.filter_map(|path| seen_through(root, &path)).collect()
}

/// Where `path` of the host is visible in a sandbox over `root`, if it is.
fn seen_through(root: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(root).ok()?;
    (!below.as_os_str().is_empty()).then(|| display(Path::new("/").join(below)))
}

/// Symlinks are not followed: the agent covers their targets, if these are in the root.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A path that is not UTF-8 cannot be named in the boot frame; none of ours is.
fn display(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_in_every_home_and_in_the_system_is_hidden() {
        let base = std::env::temp_dir().join(format!("burrow-hide-{}", std::process::id()));
        let homes = ["a", "b"].map(|name| base.join(name));
        for home in &homes {
            for name in HIDDEN_IN_HOME {
                std::fs::create_dir_all(home.join(name)).unwrap();
            }
        }
        let hidden = hidden_on_host(&homes);
        for home in &homes {
            for name in HIDDEN_IN_HOME {
                assert!(hidden.contains(&home.join(name)), "{name} is not hidden");
            }
        }
        assert!(hidden.contains(&PathBuf::from("/etc/shadow")));
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_path_shows_only_through_a_root_above_it() {
        let path = Path::new("/var/lib/burrow");
        assert_eq!(seen_through(Path::new("/"), path).as_deref(), Some("/var/lib/burrow"));
        assert_eq!(seen_through(Path::new("/var"), path).as_deref(), Some("/lib/burrow"));
        assert_eq!(seen_through(Path::new("/images/alpine"), path), None);
        assert_eq!(seen_through(path, path), None);
    }
}
