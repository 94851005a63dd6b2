//! The document as others use it: types that are generated of it, and its page as a browser runs it.
//!
//! What that takes comes from npm into a directory below `target/`, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::http::Client;
use tests::server::Server;
use tests::{have_or_skip, skip};

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/generators")
}

/// Where the packages are; nothing when they cannot be had, which the test says.
fn home() -> Option<PathBuf> {
    if !["node", "npm"].into_iter().all(have_or_skip) {
        return None;
    }
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("target/generators");
    let made = Command::new(ours().join("install")).arg(&home).output().expect("sh runs");
    if made.status.success() {
        return Some(home);
    }
    let stderr = String::from_utf8_lossy(&made.stderr).into_owned();
    skip(&format!("no packages of npm: {}", stderr.lines().last().unwrap_or_default()));
    None
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{failed}", output.status);
    stdout
}

#[test]
fn types_that_are_generated_of_the_document_tell_unions_apart_and_let_fields_be_left_out() {
    let Some(home) = home() else { return };
    let server = Server::dev();
    let place = server.scratch().join("typescript");
    fs::create_dir(&place).expect("a directory");
    let served = Client::new(server.url()).get("/openapi.json").expect(200);
    fs::write(place.join("openapi.json"), served.body).expect("a file");
    fs::copy(ours().join("sample.ts"), place.join("sample.ts")).expect("a file");
    let tool = |name: &str| home.join("node_modules/.bin").join(name);
    let mut generate = Command::new(tool("openapi-typescript"));
    succeeds(generate.current_dir(&place).args(["openapi.json", "--output", "api.ts"]));
    let mut compile = Command::new(tool("tsc"));
    compile.current_dir(&place).args(["--strict", "--noEmit", "--target", "es2022"]);
    succeeds(compile.args(["--module", "esnext", "--moduleResolution", "bundler", "sample.ts"]));
}

#[test]
fn the_page_of_the_document_searches_and_calls_the_server() {
    let Some(home) = home() else { return };
    let server = Server::with_keys();
    let key = server.ok(&["keygen"]);
    let mut page = Command::new("node");
    page.arg(ours().join("page.mjs")).args([server.url(), key.trim()]).env("NODE_PATH", &home);
    let output = succeeds(page.current_dir(&home));
    assert_eq!(output, "the page works\n");
    assert_eq!(server.ok(&["ps", "--quiet"]), "tried\n");
}
