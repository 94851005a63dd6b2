//! Libraries from `PyPI` below `target/`, fetched once: as Pythons that have them, and as files for a registry of
//! a test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{kept_for_boxes, skip};

/// Makes the environment `$0` with the packages `$@`, and the list of fonts, which takes seconds.
const INSTALL: &str = r#"
[ -e "$0/ready" ] && exit
rm -rf "$0"
python3 -m venv "$0"
timeout 120 "$0/bin/python" -m pip install --quiet --disable-pip-version-check \
    --only-binary :all: --timeout 15 --retries 1 "$@"
if "$0/bin/python" -c 'import importlib.util as u; exit(u.find_spec("matplotlib") is None)'; then
    MPLCONFIGDIR="$0/fonts" "$0/bin/python" -c 'import matplotlib.font_manager'
fi
touch "$0/ready"
"#;

/// The libraries for drawing and computing, in the environment `displays`.
pub const SCIENCE: [&str; 5] = ["matplotlib", "pillow", "pandas", "plotly", "numpy"];

/// Fetches the packages `$@` and what they need into `$0`, as files.
const DOWNLOAD: &str = r#"
[ -e "$0/ready" ] && exit
rm -rf "$0"
timeout 120 python3 -m pip download --quiet --disable-pip-version-check \
    --only-binary :all: --timeout 15 --retries 1 --dest "$0" "$@"
touch "$0/ready"
"#;

/// A directory with the wheels of these packages and of what they need; `None`, with a printed reason, if
/// they are not available.
///
/// # Panics
/// When nothing can be written below `target/`.
pub fn wheels_of(name: &str, packages: &[&str]) -> Option<PathBuf> {
    made(name, DOWNLOAD, packages)
}

/// The directory of an environment with these packages; `None`, with a printed reason, if they are
/// not available.
///
/// # Panics
/// When nothing can be written below `target/`.
pub fn python_with(name: &str, packages: &[&str]) -> Option<PathBuf> {
    made(name, INSTALL, packages)
}

/// Makes a directory below `target/`, unless it was made before.
fn made(name: &str, script: &str, packages: &[&str]) -> Option<PathBuf> {
    let home = match kept_for_boxes(name) {
        Ok(home) => home,
        Err(reason) => {
            skip(&reason);
            return None;
        }
    };
    let target = home.parent().expect("it is below target/");
    fs::create_dir_all(target).expect("target/");
    // The tests are processes of their own, of which one makes it.
    let made = Command::new("flock")
        .arg(target.join(format!("{name}.lock")))
        .args(["sh", "-ec", script])
        .arg(&home)
        .args(packages)
        .output()
        .expect("flock runs");
    if home.join("ready").exists() && made.status.success() {
        return Some(home);
    }
    let stderr = String::from_utf8_lossy(&made.stderr).into_owned();
    let reason = stderr.lines().last().unwrap_or("it is not said why");
    skip(&format!("not to be had: {}: {reason}", packages.join(", ")));
    None
}
