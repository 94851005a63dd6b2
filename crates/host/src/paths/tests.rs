use std::collections::HashMap;
use std::os::unix::fs::symlink;

use super::*;

fn resolved(uid: u32, variables: &[(&str, &str)]) -> Result<Paths, PathsError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    Paths::resolve(&|name| variables.get(name).map(OsString::from), uid)
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("burrow-config-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn root_has_the_system_directories() {
    let paths = resolved(0, &[("HOME", "/root"), ("XDG_RUNTIME_DIR", "/run/user/0")]).unwrap();
    assert_eq!(paths.runtime, Path::new("/run/burrow"));
    assert_eq!(paths.state, Path::new("/var/lib/burrow"));
}

#[test]
fn a_user_has_the_directories_of_the_desktop_standard() {
    let paths = resolved(7, &[("HOME", "/home/u"), ("XDG_RUNTIME_DIR", "/run/user/7")]).unwrap();
    assert_eq!(paths.runtime, Path::new("/run/user/7/burrow"));
    assert_eq!(paths.state, Path::new("/home/u/.local/state/burrow"));
    let paths = resolved(7, &[("XDG_STATE_HOME", "/s")]).unwrap();
    assert_eq!(paths.runtime, Path::new("/tmp/burrow-7"));
    assert_eq!(paths.state, Path::new("/s/burrow"));
}

#[test]
fn the_own_variables_win_and_must_be_absolute() {
    let own = [("BURROW_RUNTIME_DIR", "/r"), ("BURROW_STATE_DIR", "/s")];
    let paths = resolved(0, &own).unwrap();
    assert_eq!(
        (paths.runtime.as_path(), paths.state.as_path()),
        (Path::new("/r"), Path::new("/s"))
    );
    assert!(matches!(
        resolved(0, &[("BURROW_RUNTIME_DIR", "here")]),
        Err(PathsError::Relative { .. })
    ));
}

#[test]
fn without_a_home_the_message_names_the_variable_to_set() {
    let error = resolved(7, &[]).unwrap_err();
    assert!(error.to_string().contains("BURROW_STATE_DIR"), "{error}");
}

#[test]
fn prepare_makes_private_directories_and_tightens_open_ones() {
    let base = scratch("prepare");
    let paths = Paths { runtime: base.join("r"), state: base.join("deep/er") };
    fs::create_dir(&paths.runtime).unwrap();
    fs::set_permissions(&paths.runtime, fs::Permissions::from_mode(0o755)).unwrap();
    paths.prepare().unwrap();
    for path in [&paths.runtime, &paths.state] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
    }
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn prepare_refuses_a_file_and_too_long_a_path() {
    let base = scratch("refuse");
    fs::write(base.join("file"), "").unwrap();
    let paths = Paths { runtime: base.join("file"), state: base.join("s") };
    assert!(matches!(paths.prepare(), Err(PathsError::NotADirectory { .. })));
    let paths = Paths { runtime: base.join("x".repeat(100)), state: base.join("s") };
    assert!(matches!(paths.prepare(), Err(PathsError::TooLong { .. })));
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn prepare_refuses_what_belongs_to_somebody_else() {
    // A directory of root that everybody sees: for root it is its own, so look from outside.
    if nix::unistd::geteuid().is_root() {
        let base = scratch("foreign");
        let target = base.join("theirs");
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::chown(&target, Some(12345), None).unwrap();
        symlink(&target, base.join("link")).unwrap();
        let paths = Paths { runtime: base.join("link"), state: base.join("s") };
        let error = paths.prepare().unwrap_err();
        assert!(matches!(error, PathsError::NotYours { owner: 12345, .. }), "{error}");
        fs::remove_dir_all(base).unwrap();
    } else {
        let paths = Paths { runtime: "/usr".into(), state: "/usr".into() };
        assert!(matches!(paths.prepare(), Err(PathsError::NotYours { owner: 0, .. })));
    }
}
