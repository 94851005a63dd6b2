//! Environments of Python and Node below `target/`, with the packages that a client's suite needs. They are made
//! once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tests::server::Server;

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of a workspace")
}

/// The environment `target/NAME`, made by the script `install`; why there is none if it cannot be made.
pub fn installed(name: &str, install: &Path) -> Result<PathBuf, String> {
    let home = workspace().join("target").join(name);
    let made = Command::new(install).arg(&home).output().expect("sh runs");
    if made.status.success() {
        return Ok(home);
    }
    let stderr = String::from_utf8_lossy(&made.stderr).into_owned();
    Err(stderr.lines().last().unwrap_or("the script does not say why").to_owned())
}

/// The same, with a printed skip where there is none.
pub fn installed_or_skip(name: &str, install: &Path, what: &str) -> Option<PathBuf> {
    match installed(name, install) {
        Ok(home) => Some(home),
        Err(reason) => {
            tests::skip(&format!("no {what} to test with: {reason}"));
            None
        }
    }
}

/// # Panics
/// When a client has failed, with what it and the server have said.
pub fn assert_succeeded(ran: &Output, server: &Server) {
    if ran.status.success() {
        return;
    }
    let said = [&ran.stdout[..], &ran.stderr[..]].concat();
    let log = fs::read_to_string(server.log()).unwrap_or_default();
    panic!("{}\nthe server said:\n{log}", String::from_utf8_lossy(&said));
}

/// The names of the suites that are written in a directory, in order.
pub fn suites_in(tests: &Path, prefix: &str, suffix: &str) -> Vec<String> {
    let entries = fs::read_dir(tests).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let mut written: Vec<_> = names
        .filter_map(|name| Some(name.strip_prefix(prefix)?.strip_suffix(suffix)?.to_owned()))
        .collect();
    written.sort();
    written
}

/// Makes of each name a test that runs the suite of that name, with the function `run`.
macro_rules! suites {
    ($($suite:ident)*) => {
        $(#[test]
        fn $suite() {
            run(stringify!($suite));
        })*

        const SUITES: &[&str] = &[$(stringify!($suite)),*];
    };
}
pub(crate) use suites;
