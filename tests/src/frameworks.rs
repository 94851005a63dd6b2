//! The frameworks of web apps: they come from `PyPI` into an environment below `target/`, once.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PACKAGES: &[&str] = &["flask", "fastapi", "uvicorn", "streamlit"];

/// Makes the environment `$0` with the packages `$@`.
const INSTALL: &str = r#"
[ -e "$0/ready" ] && exit
rm -rf "$0"
python3 -m venv "$0"
"$0/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    --timeout 15 --retries 1 "$@"
touch "$0/ready"
"#;

/// The directory of an environment with them; `None`, with a printed reason, if they are not
/// available.
///
/// # Panics
/// When it cannot be looked for.
pub fn frameworks() -> Option<PathBuf> {
    let home = match crate::kept_for_boxes("frameworks") {
        Ok(home) => home,
        Err(reason) => {
            crate::skip(&reason);
            return None;
        }
    };
    let target = home.parent().expect("it is below target/");
    fs::create_dir_all(target).expect("target/");
    // The tests are processes of their own, of which one makes the environment.
    let made = Command::new("flock")
        .arg(target.join("frameworks.lock"))
        .args(["sh", "-ec", INSTALL])
        .arg(&home)
        .args(PACKAGES)
        .output()
        .expect("flock runs");
    if made.status.success() {
        return Some(home);
    }
    let stderr = String::from_utf8_lossy(&made.stderr).into_owned();
    let reason = stderr.lines().last().unwrap_or("it is not said why");
    crate::skip(&format!("no frameworks to serve apps with: {reason}"));
    None
}
