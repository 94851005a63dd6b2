use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::limits::{COMMAND_DEADLINE, SECRET_BYTES_MAX};
use super::*;

fn secrets(entries: &[(&str, Source, Reach)]) -> Secrets {
    let entry = |(name, source, reach): &(&str, Source, Reach)| {
        let variable = usual_variable(name);
        (
            (*name).to_owned(),
            Entry {
                source: source.clone(),
                variable,
                reach: reach.clone(),
                hosts: Vec::new(),
                fields: Vec::new(),
            },
        )
    };
    Secrets::new(entries.iter().map(entry).collect())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn command(words: &[&str]) -> Source {
    Source::Command(names(words))
}

async fn resolved(source: Source) -> Result<String, ProviderError> {
    let secrets = secrets(&[("x", source, Reach::All)]);
    match secrets.resolve("team", &names(&["x"])).await {
        Ok(values) => Ok(values[0].value.expose().to_owned()),
        Err(SecretError::Provider { source, .. }) => Err(source),
        Err(error) => panic!("{error}"),
    }
}

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("burrow-secret-{}-{name}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    place
}

#[tokio::test]
async fn a_file_loses_the_line_break_that_ends_it_and_nothing_else() {
    let place = place("file");
    let path = place.join("value");
    for (bytes, value) in
        [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a ")]
    {
        fs::write(&path, bytes).unwrap();
        assert_eq!(resolved(Source::File(path.clone())).await.unwrap(), value);
    }
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn invalid_environment_values_are_refused() {
    let place = place("bad");
    let path = place.join("value");
    let read = || resolved(Source::File(path.clone()));
    assert!(matches!(read().await, Err(ProviderError::Unread { .. })));
    fs::write(&path, "\n").unwrap();
    assert!(matches!(read().await, Err(ProviderError::Empty)));
    fs::write(&path, "a\0b").unwrap();
    assert!(matches!(read().await, Err(ProviderError::Zero)));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(read().await, Err(ProviderError::NotText)));
    fs::write(&path, vec![b'a'; SECRET_BYTES_MAX]).unwrap();
    assert_eq!(read().await.unwrap().len(), SECRET_BYTES_MAX);
    fs::write(&path, vec![b'a'; SECRET_BYTES_MAX + 1]).unwrap();
    assert!(matches!(read().await, Err(ProviderError::TooLong)));
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test]
async fn a_command_gives_what_it_prints_and_fails_without_its_words() {
    assert_eq!(resolved(command(&["/bin/echo", "a  $HOME"])).await.unwrap(), "a  $HOME");
    let failed = resolved(command(&["/bin/sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"]));
    let failed = failed.await.unwrap_err();
    assert!(matches!(failed, ProviderError::Failed { .. }));
    assert!(!format!("{failed} {failed:?}").contains("exit 3;"), "{failed:?}");
    assert_eq!(failed.public_message(), "it failed");
    let missing = resolved(command(&["/nowhere/program"])).await.unwrap_err();
    assert!(matches!(missing, ProviderError::NotStarted { .. }));
    let much = resolved(command(&["/bin/sh", "-c", "yes"])).await.unwrap_err();
    assert!(matches!(much, ProviderError::TooLong), "{much}");
}

#[tokio::test]
async fn a_command_does_not_see_the_secrets_of_our_environment() {
    // Every process has this one.
    let hidden = ("path", Source::Environment("PATH".to_owned()), Reach::All);
    let shown = ("shown", command(&["/usr/bin/env"]), Reach::All);
    let secrets = secrets(&[hidden, shown]);
    let values = secrets.resolve("team", &names(&["path", "shown"])).await.unwrap();
    assert_eq!(values[0].value.expose(), std::env::var("PATH").unwrap());
    assert!(!values[1].value.expose().lines().any(|line| line.starts_with("PATH=")));
}

#[tokio::test]
async fn a_command_that_hangs_is_ended_with_its_children() {
    let place = place("hang");
    let (script, pid) = (place.join("script"), place.join("pid"));
    let text = format!("#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n", pid.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let began = Instant::now();
    let overran = resolved(command(&[script.to_str().unwrap()])).await.unwrap_err();
    assert!(matches!(overran, ProviderError::Overran { .. }), "{overran}");
    assert!(began.elapsed() < COMMAND_DEADLINE + Duration::from_secs(5));
    let child = fs::read_to_string(&pid).unwrap();
    let cmdline = Path::new("/proc").join(child.trim()).join("cmdline");
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::read(&cmdline).is_ok_and(|line| !line.is_empty()) {
        assert!(Instant::now() < deadline, "a child of the command lives on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_secret_of_another_namespace_is_as_unknown_as_none() {
    let source = Source::Environment("X".to_owned());
    let these = Reach::These(names(&["team"]));
    let secrets = secrets(&[("theirs", source.clone(), these), ("all", source, Reach::All)]);
    assert_eq!(secrets.variables("team", &names(&["theirs", "all"])).unwrap(), ["THEIRS", "ALL"]);
    let error = |name: &str| secrets.variables("other", &names(&[name])).unwrap_err().to_string();
    assert_eq!(error("theirs").replace("theirs", "none"), error("none"));
    assert!(matches!(
        secrets.variables("team", &names(&["all", "all"])),
        Err(SecretError::Twice { .. })
    ));
    let many = vec!["all".to_owned(); SECRETS_PER_SANDBOX_MAX + 1];
    assert!(matches!(secrets.variables("team", &many), Err(SecretError::TooMany { .. })));
}

#[test]
fn no_value_is_shown() {
    let secret = Secret::of(b"hunter2".to_vec()).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(…)");
    assert_eq!(format!("{:?}", Wiped::new(b"hunter2".to_vec())), "Wiped(7 bytes)");
}

#[test]
fn names_become_variables() {
    assert_eq!(usual_variable("npm-token.2"), "NPM_TOKEN_2");
    assert!(is_name("npm-token.2") && !is_name("2a") && !is_name("a/b") && !is_name(""));
    assert!(is_variable("_A1") && !is_variable("A=B") && !is_variable("1A"));
}
