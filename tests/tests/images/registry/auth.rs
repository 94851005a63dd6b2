//! Who may read: names and passwords, tokens, programs that keep them, certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use image::registry::{Mirror, PullError, Registry as Particular};
use tests::registry::{Layout, Registry, is_here};
use tests::token::{TokenServer, USER_AND_PASSWORD};
use tests::{Burrow, have_or_skip, skip};

use super::scene::Scene;

/// `alice:s3cret`, as base64 has it.
const ALICE: &str = "YWxpY2U6czNjcmV0";
const ALICE_WRONG: &str = "YWxpY2U6d3Jvbmc=";

/// A registry that wants a name and a password, with an image in it.
fn with_passwords(dir: &Path) -> Option<Registry> {
    if !is_here() || !have_or_skip("htpasswd") {
        return None;
    }
    let made =
        Command::new("htpasswd").args(["-Bbn", "alice", "s3cret"]).output().expect("it runs");
    let path = dir.join("htpasswd");
    fs::write(&path, made.stdout).expect("written");
    let auth = format!("auth: {{ htpasswd: {{ realm: tests, path: {} }} }}\n", path.display());
    let registry = Registry::start(&auth);
    registry.push(&Layout::image(&[1000]), "team/app", &["--dest-creds", "alice:s3cret"]);
    Some(registry)
}

fn write_auth(scene: &mut Scene, content: &str) {
    let path = scene.path().join("auth.json");
    fs::write(&path, content).expect("written");
    scene.options.auth_files = vec![path];
}

#[tokio::test]
async fn names_and_passwords_are_taken_from_dockers_file() {
    let mut scene = Scene::new();
    let Some(registry) = with_passwords(scene.path()) else { return };
    let name = format!("{}/team/app", registry.host());
    let error = scene.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Anonymous { .. }), "{error}");
    assert!(error.to_string().contains("login"), "{error}");
    let auths =
        |auth: &str| format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.host());
    write_auth(&mut scene, &auths(ALICE_WRONG));
    let error = scene.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Denied { .. }), "{error}");
    let message = format!("{error} {error:?}");
    assert!(
        message.contains("alice") && !message.contains("wrong") && !message.contains(ALICE_WRONG),
        "{message}"
    );
    write_auth(&mut scene, &auths(ALICE));
    scene.pull(&name).await.unwrap();
}

/// What the next test runs again, with a program of its own on `PATH`.
#[tokio::test]
#[ignore = "part of another test"]
async fn inner_pull_with_a_keeper() {
    let name = std::env::var("BURROW_TEST_PULL").unwrap();
    let mut scene = Scene::new();
    write_auth(&mut scene, r#"{"credsStore":"burrow-test"}"#);
    scene.pull(&name).await.unwrap();
}

#[test]
fn a_program_that_keeps_credentials_is_asked() {
    let scene = Scene::new();
    let Some(registry) = with_passwords(scene.path()) else { return };
    let bin = scene.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let keeper = bin.join("docker-credential-burrow-test");
    let pull = |script: &str| {
        fs::write(&keeper, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&keeper, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "registry::auth::inner_pull_with_a_keeper",
                "--ignored",
                "--nocapture",
            ])
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("BURROW_TEST_PULL", format!("{}/team/app", registry.host()))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), stderr)
    };
    let host = registry.host();
    let answer = format!(r#"{{"ServerURL":"{host}","Username":"alice","Secret":"s3cret"}}"#);
    let good = format!(r#"[ "$1" = get ] && [ "$(cat)" = {host} ] && echo '{answer}'"#);
    let (pulled, stderr) = pull(&good);
    assert!(pulled, "{stderr}");
    let (pulled, stderr) = pull("echo 'credentials not found in native keychain'; exit 1");
    assert!(!pulled && stderr.contains("Anonymous"), "{stderr}");
    let (pulled, stderr) = pull("echo s3cret; exit 3");
    assert!(!pulled && stderr.contains("HelperFailed") && !stderr.contains("s3cret"), "{stderr}");
    let (pulled, stderr) = pull("yes s3cret");
    assert!(!pulled && !stderr.contains("s3cret"), "{stderr}");
}

#[tokio::test]
async fn tokens_are_fetched_from_where_the_registry_says() {
    if !is_here() || !have_or_skip("openssl") {
        return;
    }
    let mut scene = Scene::new();
    let server = TokenServer::start();
    let registry = Registry::start(&server.registry_auth());
    let credentials = format!("{}:{}", USER_AND_PASSWORD.0, USER_AND_PASSWORD.1);
    registry.push(&Layout::image(&[1000, 2000, 3000]), "team/app", &["--dest-creds", &credentials]);
    let name = format!("{}/team/app", registry.host());
    let refused = scene.pull(&name).await.unwrap_err();
    assert!(matches!(refused, PullError::NotPublic { .. }), "{refused}");
    let token_server = server.host().parse().unwrap();
    scene.options.registries.insert(token_server, Particular::default());
    let asked_before = server.requests();
    let error = scene.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Anonymous { .. }), "{error}");
    let (user, password) = USER_AND_PASSWORD;
    let auths = format!(
        r#"{{"auths":{{"{}":{{"username":"{user}","password":"{password}"}}}}}}"#,
        registry.host()
    );
    write_auth(&mut scene, &auths);
    scene.pull(&name).await.unwrap();
    // One token for the manifest, the configuration and all layers.
    assert_eq!(server.requests(), asked_before + 2);
}

#[tokio::test]
async fn a_registry_is_trusted_by_the_certificates_that_the_configuration_names() {
    if !is_here() || !have_or_skip("openssl") {
        return;
    }
    let mut scene = Scene::new();
    let path = |name: &str| scene.path().join(name).display().to_string();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .unwrap();
    if !made.status.success() {
        skip("openssl makes no certificate");
        return;
    }
    let registry = Registry::start(&format!("tls: {{ certificate: {certificate}, key: {key} }}"));
    registry.push(&Layout::image(&[1000]), "app", &[]);
    // On this host it would be spoken to in the clear; as a mirror it says how.
    let mirror = Mirror::parse(&format!("https://{}", registry.host())).unwrap();
    let particular = Particular { mirrors: vec![mirror], ..Particular::default() };
    scene.options.registries.insert("images.example".parse().unwrap(), particular);
    let error = scene.pull("images.example/app").await.unwrap_err();
    let PullError::Everywhere { reasons, .. } = &error else { panic!("{error}") };
    assert!(matches!(reasons[0].1, PullError::Tls { .. }), "{error}");
    let trusting =
        Particular { authorities: Some(certificate.clone().into()), ..Particular::default() };
    scene.options.registries.insert(registry.host().parse().unwrap(), trusting);
    let pulled = scene.pull("images.example/app").await.unwrap();
    assert_eq!(pulled.source, format!("https://{}", registry.host()));
    // For all registries at once, in the configuration.
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    let mirror =
        format!("[registries.\"images.example\"]\nmirror = [\"https://{}\"]\n", registry.host());
    for (ca, is_pulled) in [("[]".to_owned(), false), (format!("[\"{certificate}\"]"), true)] {
        fs::write(&config, format!("[images]\nca = {ca}\n{mirror}")).unwrap();
        let line =
            ["image", "pull", "-q", "--config", config.to_str().unwrap(), "images.example/app"];
        let output = burrow.run(&line);
        assert_eq!(
            output.status.success(),
            is_pulled,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
