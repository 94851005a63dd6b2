//! The agent for machines: where it is searched, and the copy in the bridge itself, so that one copied file
//! is enough.
//!
//! `machine` executes it. A file is preferred to the copy, because who puts one beside the program
//! means that one.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::paths::{
    AGENT_VARIABLE, PRIVATE_DIRECTORY, Paths, describe_places, first_program,
    make_private_directory, write_durably,
};

/// The copy, if this program carries one.
static CARRIED: OnceLock<&[u8]> = OnceLock::new();

/// Says which agent the running program carries. `host-bridge` does this before anything else.
pub fn carry(program: &'static [u8]) {
    let _ = CARRIED.set(program);
}

/// The agent's location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    At(PathBuf),
    /// In the running program.
    Carried(&'static [u8]),
}

impl Agent {
    /// The file, if it is one that others may look at.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::At(path) => Some(path),
            Self::Carried(_) => None,
        }
    }

    /// Its name in process lists.
    pub fn name(&self) -> &Path {
        self.path().unwrap_or(Path::new("guest-agent"))
    }

    /// A file of it that can be executed. The copy becomes one of the state directory, where no other
    /// user can reach it; it is written when it is not there yet.
    pub fn file(&self) -> io::Result<PathBuf> {
        match self {
            Self::At(path) => Ok(path.clone()),
            Self::Carried(program) => {
                let paths = Paths::from_environment().map_err(io::Error::other)?;
                written_copy(program, &paths.state)
            }
        }
    }
}

/// The file of a program in a state directory, which is written unless it is there as it should be.
fn written_copy(program: &[u8], state: &Path) -> io::Result<PathBuf> {
    let name = format!("guest-agent-{}", env!("CARGO_PKG_VERSION"));
    let path = state.join(&name);
    let is_written = || fs::read(&path).is_ok_and(|written| written == program);
    if !is_written() {
        make_private_directory(state)?;
        let written = write_durably(state, &name, program);
        // Another process may have been first.
        written.or_else(|error| if is_written() { Ok(()) } else { Err(error) })?;
    }
    // A crash may have come between the two.
    fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE_DIRECTORY))?;
    Ok(path)
}

impl From<PathBuf> for Agent {
    fn from(path: PathBuf) -> Self {
        Self::At(path)
    }
}

/// No agent was found; lists where it was searched.
#[derive(Debug, thiserror::Error)]
#[error(
    "the guest-agent was not found.{}\nBuild it with `./do build`, or set {AGENT_VARIABLE} to its path.",
    describe_places(places)
)]
pub struct AgentMissing {
    /// Each path, with the reason why it was not used.
    pub places: Vec<(PathBuf, String)>,
}

/// Finds the agent that goes into machines: where `BURROW_AGENT` says, beside this program, where a
/// build leaves it, or in this program.
pub fn find_agent() -> Result<Agent, AgentMissing> {
    let named = std::env::var_os(AGENT_VARIABLE).filter(|value| !value.is_empty());
    let is_named = named.is_some();
    let program = std::env::current_exe().ok();
    let places = agent_places(named.map(PathBuf::from), program.as_deref());
    match (first_program(places), CARRIED.get()) {
        (Ok(path), _) => Ok(Agent::At(path)),
        // Another than the named one would hide the mistake.
        (Err(_), Some(program)) if !is_named => Ok(Agent::Carried(program)),
        (Err(places), _) => Err(AgentMissing { places }),
    }
}

/// Where the agent may be, in order. A named one is the only one: running another silently would
/// hide the mistake.
fn agent_places(named: Option<PathBuf>, program: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = named {
        return vec![path];
    }
    let Some(mut directory) = program.and_then(Path::parent) else { return Vec::new() };
    let mut places = vec![directory.join("guest-agent")];
    // Test programs live one level below the profile's directory.
    if directory.ends_with("deps") {
        directory = directory.parent().unwrap_or(directory);
    }
    if let (Some(profile), Some(target)) = (directory.file_name(), directory.parent()) {
        let built = target.join(format!("{}-unknown-linux-musl", std::env::consts::ARCH));
        for profile in [profile, "release".as_ref(), "debug".as_ref()] {
            let place = built.join(profile).join("guest-agent");
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_sought_beside_the_program_and_in_the_build_directory() {
        let places = agent_places(None, Some(Path::new("/w/target/release/host-bridge")));
        let built = format!("/w/target/{}-unknown-linux-musl", std::env::consts::ARCH);
        assert_eq!(places[0], Path::new("/w/target/release/guest-agent"));
        assert_eq!(places[1], Path::new(&built).join("release/guest-agent"));
        let places = agent_places(None, Some(Path::new("/w/target/debug/deps/x-1")));
        assert!(places.contains(&Path::new(&built).join("debug/guest-agent")), "{places:?}");
    }

    #[test]
    fn the_copy_of_a_carried_agent_is_written_once_and_again_when_it_is_another() {
        use std::os::unix::fs::MetadataExt as _;

        let state = std::env::temp_dir().join(format!("burrow-agent-{}", std::process::id()));
        let _ = fs::remove_dir_all(&state);
        let program = fs::read("/bin/true").unwrap();
        let path = written_copy(&program, &state).unwrap();
        assert!(std::process::Command::new(&path).status().unwrap().success());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let inode = || fs::metadata(&path).unwrap().ino();
        let first = inode();
        // The remains of an interrupted write are replaced.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(written_copy(&program, &state).unwrap(), path);
        assert_eq!((inode(), fs::metadata(&path).unwrap().mode() & 0o777), (first, 0o700));
        fs::write(&path, b"damaged").unwrap();
        assert_eq!(written_copy(&program, &state).unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), program);
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn a_named_agent_is_the_only_one_looked_for_and_a_missing_one_is_reported() {
        let places = agent_places(Some("/nowhere/agent".into()), Some(Path::new("/bin/sh")));
        let places = first_program(places).unwrap_err();
        let error = AgentMissing { places };
        let text = error.to_string();
        assert!(text.contains("/nowhere/agent") && text.contains("./do build"), "{text}");
        assert!(first_program(vec!["/etc/passwd".into(), "/bin/sh".into()]).is_ok());
    }
}
