//! Packages that were installed for sandboxes over the host's own root: a directory of this host, which such
//! a sandbox sees at the same path, and the variables that name it to programs.
//!
//! `services` fills such directories and removes them; a specification and a record name one, so that it
//! stays while the sandbox is there, and comes with it when it is restarted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::stored::records;
use host::paths::Paths;

/// Where programs look for packages in the directory.
const PYTHON_PACKAGES: &str = "python";
const NODE_PACKAGES: &str = "node/lib/node_modules";
const PROGRAMS: [&str; 2] = ["python/bin", "node/bin"];

/// The default `PATH` of a sandbox.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Sets the variables, so that programs find these packages before others of the same names.
pub fn add_to(directory: &Path, env: &mut Vec<(String, String)>) {
    let at = |inner: &str| directory.join(inner).display().to_string();
    prepend(env, "PYTHONPATH", &at(PYTHON_PACKAGES), None);
    prepend(env, "NODE_PATH", &at(NODE_PACKAGES), None);
    prepend(env, "PATH", &PROGRAMS.map(at).join(":"), Some(DEFAULT_PATH));
}

fn prepend(env: &mut Vec<(String, String)>, name: &str, first: &str, usual: Option<&str>) {
    let set = env.iter_mut().find(|(known, _)| known == name);
    let rest = set.as_ref().map(|(_, value)| value.as_str()).or(usual);
    let value = rest.map_or_else(|| first.to_owned(), |rest| format!("{first}:{rest}"));
    match set {
        Some((_, old)) => *old = value,
        None => env.push((name.to_owned(), value)),
    }
}

/// The directories that sandboxes of a state directory have which are not over. A sandbox that lives no
/// longer than its process has no record there; that process holds its directory itself.
pub fn users(paths: &Paths) -> BTreeSet<PathBuf> {
    let records = records(paths).filter(|record| !record.state.is_over());
    records.filter_map(|record| record.packages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_has_set_stays_behind_the_packages() {
        let mut env = vec![("PYTHONPATH".to_owned(), "/own".to_owned())];
        add_to(Path::new("/c/k"), &mut env);
        let value = |name: &str| {
            env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        assert_eq!(value("PYTHONPATH"), Some("/c/k/python:/own"));
        assert_eq!(value("NODE_PATH"), Some("/c/k/node/lib/node_modules"));
        let path = value("PATH").unwrap();
        assert!(path.starts_with("/c/k/python/bin:/c/k/node/bin:/usr/local/sbin:"), "{path}");
    }
}
