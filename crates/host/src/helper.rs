//! The helper: a separate process for actions that would change the bridge's own process, such as entering
//! the namespaces of a sandbox to mount a directory there. It is `host-bridge` itself, run with a hidden
//! verb.
//!
//! A bridge that is `host-bridge` runs itself, which works also after its file was replaced by that of
//! another release. A program that embeds the bridge as a library needs the file: it is looked for as
//! the agent is. `machine` starts the helper; nothing here does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::paths::{describe_places, first_program};

pub use crate::paths::HELPER_VARIABLE as VARIABLE;

/// The name of its file.
const FILE: &str = "host-bridge";

/// Set by a program that has the helper's verbs.
static THIS_PROGRAM: OnceLock<()> = OnceLock::new();

/// Says that the running program has the helper's verbs. `host-bridge` does this before anything else.
pub fn offer_this_program() {
    let _ = THIS_PROGRAM.set(());
}

/// The helper's location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Helper {
    ThisProgram,
    At(PathBuf),
}

impl Helper {
    /// The path that a child of this process executes.
    pub fn program(&self) -> PathBuf {
        match self {
            Self::ThisProgram => PathBuf::from("/proc/self/exe"),
            Self::At(path) => path.clone(),
        }
    }

    /// The path for another program, for which `self` would be itself.
    pub fn program_for_others(&self) -> PathBuf {
        match self {
            Self::ThisProgram => PathBuf::from(format!("/proc/{}/exe", std::process::id())),
            Self::At(path) => path.clone(),
        }
    }
}

/// The helper was not found; says where it was looked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "the helper, {FILE}, was not found.{}\nPut it beside this program, or set {VARIABLE} to its path.",
    describe_places(places)
)]
pub struct HelperMissing {
    /// Each place with what is wrong with it.
    pub places: Vec<(PathBuf, String)>,
}

/// Finds the helper: where `BURROW_HELPER` says, the running program if it has the verbs, or
/// `host-bridge` beside the running program.
pub fn find_helper() -> Result<Helper, HelperMissing> {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    if named.is_none() && THIS_PROGRAM.get().is_some() {
        return Ok(Helper::ThisProgram);
    }
    let program = std::env::current_exe().ok();
    let places = helper_places(named, program.as_deref());
    first_program(places).map(Helper::At).map_err(|places| HelperMissing { places })
}

/// Where the file may be, in order. A named one is the only one: running another silently would
/// hide the mistake.
fn helper_places(named: Option<OsString>, program: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = named {
        return vec![PathBuf::from(path)];
    }
    let Some(directory) = program.and_then(Path::parent) else { return Vec::new() };
    // Tests and examples of a build are one level below the program.
    let is_below = directory.ends_with("deps") || directory.ends_with("examples");
    let above = directory.parent().filter(|_| is_below);
    [Some(directory), above].into_iter().flatten().map(|place| place.join(FILE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_looked_for_beside_the_program() {
        let places = helper_places(None, Some(Path::new("/opt/bin/embedding")));
        assert_eq!(places, [Path::new("/opt/bin/host-bridge")]);
        let places = helper_places(None, Some(Path::new("/w/debug/examples/x")));
        assert_eq!(places[1], Path::new("/w/debug/host-bridge"));
    }

    #[test]
    fn a_named_helper_is_the_only_one_looked_for_and_a_missing_one_is_reported() {
        let places = helper_places(Some("/nowhere/helper".into()), Some(Path::new("/bin/sh")));
        assert_eq!(places, [Path::new("/nowhere/helper")]);
        let places = first_program(places).unwrap_err();
        let text = HelperMissing { places }.to_string();
        assert!(text.contains("/nowhere/helper: ") && text.contains(VARIABLE), "{text}");
    }

    #[test]
    fn this_program_is_named_so_that_children_and_others_find_it() {
        let own = std::env::current_exe().unwrap();
        for path in [Helper::ThisProgram.program(), Helper::ThisProgram.program_for_others()] {
            assert_eq!(path.canonicalize().unwrap(), own.canonicalize().unwrap());
        }
    }
}
