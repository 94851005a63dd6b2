//! What programs in a sandbox over the host's own root must not see.
//!
//! A sandbox reads the host's files unless they are named here. The list is a courtesy against
//! accidents (a program that tidies up `~/.aws`, an agent that reads keys because it can), not a
//! wall: the process machine shares the host's kernel, and whoever needs a wall gives the sandbox
//! an image of its own or a real machine.

use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Credentials below a home directory: what lets its reader act as this person elsewhere.
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

/// The list for a sandbox over the host's own root: the places above, in the homes of those who
/// may have started the bridge. Paths that do not exist hide themselves.
pub fn hidden_on_host() -> Vec<String> {
    hidden_for(&homes()).into_iter().filter(|path| exists(path)).map(display).collect()
}

/// Where `path` of the host shows in a sandbox over `root`, when it shows there.
pub fn seen_through(root: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(root).ok()?;
    (!below.as_os_str().is_empty()).then(|| display(Path::new("/").join(below)))
}

fn hidden_for(homes: &[PathBuf]) -> Vec<PathBuf> {
    let of_system = HIDDEN_OF_SYSTEM.iter().map(PathBuf::from);
    let in_homes = homes.iter().flat_map(|home| HIDDEN_IN_HOME.map(|name| home.join(name)));
    of_system.chain(in_homes).collect()
}

/// The homes of the user who runs this, by the environment and by the user database, and of the
/// one who became root for it.
fn homes() -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = std::env::var_os("HOME").map(PathBuf::from).into_iter().collect();
    let ids = [Some(nix::unistd::getuid()), sudo_user()];
    let users = ids.into_iter().flatten().filter_map(|uid| User::from_uid(uid).ok().flatten());
    homes.extend(users.map(|user| user.dir));
    homes.retain(|home| home.is_absolute());
    homes.sort();
    homes.dedup();
    homes
}

fn sudo_user() -> Option<Uid> {
    std::env::var("SUDO_UID").ok()?.parse().ok().map(Uid::from_raw)
}

/// Symlinks count as what they are: the agent covers what they lead to, if that is in the root.
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
    fn every_home_and_the_system_have_their_places() {
        let hidden = hidden_for(&["/home/a".into(), "/root".into()]);
        for path in ["/home/a/.ssh", "/root/.aws", "/home/a/.config/gcloud", "/etc/shadow"] {
            assert!(hidden.contains(&PathBuf::from(path)), "{path} is not hidden");
        }
        assert_eq!(hidden.len(), HIDDEN_OF_SYSTEM.len() + 2 * HIDDEN_IN_HOME.len());
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
