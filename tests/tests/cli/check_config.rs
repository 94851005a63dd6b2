//! `serve --check-config`: what keeps a server from starting is reported before it is restarted, and what is
//! set and does nothing is listed by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::process::Output;

use tests::Burrow;

/// A digest as one is written.
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Puts a file of this text, and asks whether it will do.
fn check(burrow: &Burrow, text: &str) -> Output {
    let file = burrow.scratch().join("burrow.toml");
    fs::write(&file, text).unwrap();
    burrow.run(&["serve", "--check-config", "--config", file.to_str().unwrap()])
}

#[test]
fn invalid_configuration_is_reported_with_its_line_and_option() {
    let burrow = Burrow::new();
    let none = "/no/such/file.pem";
    for (text, words) in [
        (
            "[image_policy]\nallow = [\"a@sha256:12\"]\n",
            vec![":2:", "image_policy.allow", "a@sha256:12"],
        ),
        (
            "[image_policy]\npins = [\"a:1@sha256:12\"]\n",
            vec![":2:", "image_policy.pins", "a:1@sha256:12"],
        ),
        (
            "[server]\ntls_certificate = \"NONE\"\ntls_key = \"NONE\"\n",
            vec!["tls_certificate", none],
        ),
        ("[egress]\nca = [\"NONE\"]\n", vec![":2:", "egress.ca", none]),
        ("[images]\nca = [\"NONE\"]\n", vec![":2:", "images.ca", none]),
        ("[registries.\"r.example\"]\nca = \"NONE\"\n", vec!["registries.r.example.ca", none]),
        (
            "[secrets.z]\nenv = \"Z\"\nfile = \"/z\"\nnamespaces = \"*\"\n",
            vec!["secrets.z", "env and file both"],
        ),
    ] {
        let output = check(&burrow, &text.replace("NONE", none));
        let message = text_of(&output);
        assert!(!output.status.success(), "{text}: {message}");
        for word in words {
            assert!(message.contains(word), "{text} is told without {word}: {message}");
        }
        // `serve` itself says the same, and has begun nothing.
        let file = burrow.scratch().join("burrow.toml");
        let served = burrow.run(&["serve", "--listen", "off", "--config", file.to_str().unwrap()]);
        assert!(!served.status.success(), "{text}");
        assert_eq!(text_of(&served), message, "{text}");
    }
    let good = format!("[image_policy]\nallow = [\"a@{DIGEST}\"]\n");
    let output = check(&burrow, &good);
    assert!(output.status.success(), "{}", text_of(&output));
}

#[test]
fn a_valid_configuration_is_confirmed_with_the_name_of_its_file() {
    let burrow = Burrow::new();
    let output = check(&burrow, "[defaults]\nmemory_mib = 256\n");
    let file = burrow.scratch().join("burrow.toml");
    assert!(output.status.success(), "{}", text_of(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, format!("the configuration is valid in {}\n", file.display()));
    let without = burrow.run(&["serve", "--check-config"]);
    assert_eq!(
        String::from_utf8(without.stdout).unwrap(),
        "the configuration is valid, without a file\n"
    );
}

#[test]
fn directories_that_are_not_there_are_named() {
    let burrow = Burrow::new();
    let there = burrow.scratch().join("root");
    fs::create_dir_all(&there).unwrap();
    let there = there.to_str().unwrap();
    let output = check(&burrow, &format!("[images]\na = \"/no/such/root\"\nb = \"{there}\"\n"));
    let message = text_of(&output);
    assert!(output.status.success(), "it may come: {message}");
    assert!(message.contains("/no/such/root") && !message.contains(there), "{message}");
}

#[test]
fn variables_that_nobody_reads_are_named_with_what_they_were_meant_as_and_not_their_values() {
    let burrow = Burrow::new();
    let mut command = burrow.command(&["serve", "--check-config"]);
    command.env("BURROW_EGRES_DNS", "hunter2").env("BURROW_AUDIT_CHAIN", "true");
    let output = command.output().unwrap();
    let message = text_of(&output);
    assert!(output.status.success(), "{message}");
    assert!(message.contains("BURROW_EGRES_DNS"), "{message}");
    assert!(message.contains("did you mean BURROW_EGRESS_DNS?"), "{message}");
    assert!(!message.contains("hunter2") && !message.contains("AUDIT_CHAIN"), "{message}");
    let own = "[secrets.z]\nenv = \"BURROW_OWN_Z\"\nnamespaces = \"*\"\n";
    let file = burrow.scratch().join("burrow.toml");
    fs::write(&file, own).unwrap();
    let mut command =
        burrow.command(&["serve", "--check-config", "--config", file.to_str().unwrap()]);
    let message = text_of(&command.env("BURROW_OWN_Z", "hunter2").output().unwrap());
    assert!(!message.contains("BURROW_OWN_Z"), "a secret is read from it: {message}");
}
