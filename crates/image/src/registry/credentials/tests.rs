use std::collections::HashMap;

use super::super::secret::Secret;
use super::*;

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

fn look(content: &str, registry: &str, repository: &str) -> CredentialEntry {
    let file = AuthFile::parse(Path::new("/auth.json"), content.as_bytes()).unwrap();
    file.look(&host(registry), &repository.parse().unwrap()).unwrap()
}

fn user(found: &CredentialEntry) -> Option<&str> {
    match found {
        CredentialEntry::Credential(Credential::Password { user, .. }) => Some(user),
        _ => None,
    }
}

#[test]
fn registries_are_found_however_their_key_is_written() {
    // "a:b", "c:d:e", "n:p"
    let content = r#"{ "auths": {
        "https://index.docker.io/v1/": { "auth": "YTpi" },
        "localhost:5000": { "auth": "YzpkOmU=" },
        "https://ghcr.io": { "username": "g", "password": "h" },
        "quay.io/team": { "auth": "bjpw" },
        "empty.example": {} } }"#;
    assert_eq!(user(&look(content, "docker.io", "library/x")), Some("a"));
    let CredentialEntry::Credential(local) = look(content, "localhost:5000", "x") else {
        panic!("none")
    };
    let password = Secret::new("d:e");
    assert_eq!(local, Credential::Password { user: "c".to_owned(), password });
    assert_eq!(user(&look(content, "ghcr.io", "x/y")), Some("g"));
    assert_eq!(user(&look(content, "quay.io", "team/app")), Some("n"));
    for (registry, repository) in [
        ("quay.io", "teams/app"),
        ("localhost", "x"),
        ("localhost:5001", "x"),
        ("empty.example", "x"),
    ] {
        assert!(
            matches!(look(content, registry, repository), CredentialEntry::Nothing),
            "{registry}"
        );
    }
}

#[test]
fn programs_are_asked_where_the_file_says_so() {
    let content = r#"{ "auths": { "own.example": { "auth": "YTpi" } }, "credsStore": "all",
        "credHelpers": { "own.example": "", "gcr.io": "gcloud" } }"#;
    let helper = |registry: &str| match look(content, registry, "x") {
        CredentialEntry::Helper { name, server } => Some((name, server)),
        _ => None,
    };
    let pair = |name: &str, server: &str| Some((name.to_owned(), server.to_owned()));
    assert_eq!(helper("gcr.io"), pair("gcloud", "gcr.io"));
    assert_eq!(helper("other.example"), pair("all", "other.example"));
    assert_eq!(helper("docker.io"), pair("all", "https://index.docker.io/v1/"));
    assert_eq!(helper("own.example"), None);
    let bad = AuthFile::parse(Path::new("/x"), br#"{ "credsStore": "../../bin/sh" }"#).unwrap();
    let refused = bad.look(&host("x.example"), &"x".parse().unwrap()).err().unwrap();
    assert!(matches!(refused, CredentialsError::HelperName { .. }));
}

#[test]
fn tokens_of_identity_are_known() {
    let content = r#"{ "auths": { "a.example": { "auth": "eDo=", "identitytoken": "T" } } }"#;
    let CredentialEntry::Credential(found) = look(content, "a.example", "x") else {
        panic!("none")
    };
    assert_eq!(found, Credential::Identity(Secret::new("T")));
    assert_eq!(Credential::of("<token>", "T"), found);
}

#[test]
fn errors_and_debug_have_no_secrets_in_them() {
    let path = Path::new("/auth.json");
    let broken = br#"{ "auths": { "a.example": { "auth": hunter2 } } }"#;
    let error = AuthFile::parse(path, broken).err().unwrap();
    assert!(matches!(error, CredentialsError::Syntax { line: 1, .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    let text = r#"{ "auths": { "a.example": { "auth": "hunter2!" } } }"#;
    let file = AuthFile::parse(path, text.as_bytes()).unwrap();
    let error = file.look(&host("a.example"), &"x".parse().unwrap()).err().unwrap();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    let credential = Credential::of("me", "hunter2");
    assert!(!format!("{credential:?}").contains("hunter2"));
}

#[test]
fn files_are_looked_for_where_others_write_them() {
    let files = |variables: &[(&str, &str)]| {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let found = auth_files(&|name| variables.get(name).map(OsString::from));
        found.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(files(&[]), [""; 0]);
    assert_eq!(
        files(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/run/7")]),
        [
            "/run/7/containers/auth.json",
            "/h/.config/containers/auth.json",
            "/h/.docker/config.json"
        ]
    );
    assert_eq!(
        files(&[("DOCKER_CONFIG", "/d"), ("REGISTRY_AUTH_FILE", "/r.json")]),
        ["/r.json", "/d/config.json"]
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_knows_nothing() {
    let files = [PathBuf::from("/nonexistent/auth.json")];
    let found = find_credential(&files, &host("a.example"), &"x".parse().unwrap()).await;
    assert_eq!(found.unwrap(), None);
    let directory = [std::env::temp_dir()];
    let found = find_credential(&directory, &host("a.example"), &"x".parse().unwrap()).await;
    assert!(matches!(found, Err(CredentialsError::Unreadable { .. })));
}
