//! Where people and bridges of this host keep their files: homes, and the directories of other
//! bridges. Code that shows the host's files to a sandbox hides these; nothing here changes
//! anything.
//!
//! A bridge is found at its usual places, and where its control socket listens: a link beside that
//! points to its state. One in other places that does not run is not found.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

use crate::names::existing_below;
use crate::paths::{CONTROL_SOCKET, PRIVATE_DIRECTORY, STATE_LINK};

/// The sockets of this host with their paths.
const SOCKETS: &str = "/proc/net/unix";
const USERS: &str = "/etc/passwd";
const HOMES: &str = "/home";
/// Directories of bridges outside of homes.
const OF_SYSTEM: [&str; 2] = ["/etc/burrow", "/var/lib/burrow"];
/// The same below a home.
const IN_HOME: [&str; 2] = [".config/burrow", ".local/state/burrow"];
/// Every sandbox has its own of these, so that nothing below them is visible.
const NEVER_SHOWN: [&str; 2] = ["/run", "/tmp"];

/// How long a list of homes is cached. Reading `/home` costs root time.
const HOMES_KNOWN: Duration = Duration::from_secs(10);

/// The homes whose files a sandbox of this user may be able to read: the user's own, and that of
/// the person who became root. Root can read those of all users.
pub fn homes() -> Vec<PathBuf> {
    static KNOWN: Mutex<Option<(Instant, Vec<PathBuf>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((since, homes)) if since.elapsed() < HOMES_KNOWN => homes.clone(),
        _ => known.insert((Instant::now(), find_homes())).1.clone(),
    }
}

fn find_homes() -> Vec<PathBuf> {
    let me = nix::unistd::geteuid();
    let mut homes: Vec<PathBuf> = std::env::var_os("HOME").map(PathBuf::from).into_iter().collect();
    let ids = [Some(nix::unistd::getuid()), sudo_user()];
    let users = ids.into_iter().flatten().filter_map(|uid| User::from_uid(uid).ok().flatten());
    homes.extend(users.map(|user| user.dir));
    if me.is_root() {
        homes.extend(homes_in(&fs::read_to_string(USERS).unwrap_or_default()));
        // Users of a directory service are in no file.
        homes.extend(children(Path::new(HOMES)));
    }
    homes.sort();
    homes.dedup();
    // Accounts of the system have homes that are not there.
    homes.retain(|home| home.is_absolute() && home != Path::new("/") && home.is_dir());
    homes
}

/// The usual directories of bridges, including those in these homes, with their configurations. Those that do
/// not exist, or that this user cannot enter, are skipped.
pub fn of_bridges(homes: &[PathBuf]) -> Vec<PathBuf> {
    let usual = OF_SYSTEM.iter().map(PathBuf::from);
    let in_homes = homes.iter().flat_map(|home| existing_below(home, &IN_HOME));
    that_show(usual.chain(in_homes).collect())
}

/// The directories of running bridges, wherever they are.
pub fn of_running_bridges() -> Vec<PathBuf> {
    that_show(running(&fs::read_to_string(SOCKETS).unwrap_or_default()))
}

fn that_show(mut all: Vec<PathBuf>) -> Vec<PathBuf> {
    all.retain(|path| !NEVER_SHOWN.iter().any(|place| path.starts_with(place)));
    // Targets of symlinks are hidden, too.
    all.retain(|path| path.symlink_metadata().is_ok());
    all.sort();
    all.dedup();
    all
}

/// The directories of the bridges whose control sockets are in the kernel's table.
fn running(sockets: &str) -> Vec<PathBuf> {
    // A name that begins with '@' is in no directory, and anybody may use it.
    let named = sockets.lines().filter_map(|line| line.split_once(" /").map(|(_, path)| path));
    let named = named.map(|path| Path::new("/").join(path));
    let control = named.filter(|path| path.ends_with(CONTROL_SOCKET));
    let is_own = |socket: &Path, runtime: &Path| {
        fs::symlink_metadata(socket).is_ok_and(|found| Some(found.uid()) == owner(runtime))
    };
    let runtimes = control.filter_map(|socket| {
        let runtime = socket.parent()?;
        (is_private(runtime) && is_own(&socket, runtime)).then(|| runtime.to_owned())
    });
    let with_state = |runtime: PathBuf| {
        let state = runtime.join(STATE_LINK).canonicalize().ok();
        // Nobody may make others hide files that are not his own.
        let state = state.filter(|state| is_private(state) && owner(state) == owner(&runtime));
        [Some(runtime), state]
    };
    runtimes.flat_map(with_state).flatten().collect()
}

/// Whether it looks like a bridge's own directory.
fn is_private(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|found| found.is_dir() && found.mode() & 0o777 == PRIVATE_DIRECTORY)
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}

fn children(path: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(path).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}

/// The sixth field of each line.
fn homes_in(users: &str) -> impl Iterator<Item = PathBuf> {
    users.lines().filter_map(|line| line.split(':').nth(5).map(PathBuf::from))
}

fn sudo_user() -> Option<Uid> {
    std::env::var("SUDO_UID").ok()?.parse().ok().map(Uid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{Paths, make_private_directory};

    #[test]
    fn homes_are_in_the_sixth_field() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\na:x:1:1::/srv/a:/bin/sh\n";
        let homes: Vec<_> = homes_in(users).collect();
        assert_eq!(homes, [Path::new("/root"), Path::new("/srv/a")]);
    }

    #[test]
    fn a_bridge_that_runs_is_found_by_its_socket_with_its_state() {
        let base = std::env::temp_dir().join(format!("places-{}", std::process::id()));
        let paths = Paths { runtime: base.join("run"), state: base.join("state") };
        for path in [&paths.runtime, &paths.state] {
            make_private_directory(path).unwrap();
        }
        paths.link_state();
        fs::write(paths.control_socket(), "").unwrap();
        let line = format!("0000: 2 0 10000 1 1 77 {}\n", paths.control_socket().display());
        assert_eq!(running(&line), [paths.runtime.clone(), paths.state.canonicalize().unwrap()]);
        assert_eq!(
            running("0000: 2 0 10000 1 1 77 /nowhere/control.sock\n"),
            [""; 0].map(PathBuf::from)
        );
        let abstract_one = line.replace(" /", " @/");
        assert_eq!(running(&abstract_one), [""; 0].map(PathBuf::from));
        // A link to a world-readable file hides nothing.
        Paths { state: "/usr".into(), ..paths.clone() }.link_state();
        assert_eq!(running(&line), std::slice::from_ref(&paths.runtime));
        fs::remove_dir_all(base).unwrap();
    }
}
