//! The console in `console/`: its terminal in Node, and its pages in Chromium against a real bridge. What drives the
//! browser comes from npm into a directory below `target/`, once; screenshots are left there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{installed, suites_in, workspace};
use tests::http::Client;
use tests::server::Server;

/// More than any test of it takes on a busy machine; one that hangs says where.
const MS_MAX: &str = "480000";
const BROWSERS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

const SUITES: [&str; 3] = ["attacks", "console", "terminal"];

#[test]
fn what_a_sandbox_says_runs_and_loads_nothing_in_the_console() {
    run("attacks");
}

#[test]
fn each_page_of_the_console_works_in_a_browser() {
    run("console");
}

#[test]
fn the_terminal_of_the_console_shows_what_programs_write() {
    run("terminal");
}

fn run(suite: &str) {
    let home = match installed("console", &sources().join("install")) {
        Ok(home) => home,
        Err(reason) => return tests::skip(&format!("nothing to test the console with: {reason}")),
    };
    if suite != "terminal" {
        if !BROWSERS.iter().any(|path| Path::new(path).exists()) {
            return tests::skip("the console: there is no Chromium here");
        }
        if !tests::have("python3") {
            return tests::skip("the console: there is no python3 here");
        }
    }
    // One that asks for a key, whose sandboxes have the files of this host, and one that asks for none.
    let server = Server::start(&["--set", "process.root=/"]);
    let open = Server::dev();
    let key = server.ok(&["keygen", "--namespace", "*", "--scope", "admin"]).trim().to_owned();
    let ran = Command::new("node")
        .args(["--test", "--test-reporter=spec", &format!("--test-timeout={MS_MAX}")])
        .arg(format!("tests/{suite}.test.mjs"))
        .current_dir(&home)
        .envs(server.environment())
        .env("BURROW_OPEN_URL", open.url())
        .env("BURROW_KEY", key)
        .output()
        .expect("Node runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    // That nothing was found to run is no success.
    assert!(said.lines().any(|line| line.starts_with('\u{2714}')), "{said}");
}

fn sources() -> PathBuf {
    workspace().join("tests/console")
}

#[test]
fn every_suite_that_is_written_is_run() {
    assert_eq!(suites_in(&sources(), "", ".test.mjs"), SUITES);
}

const PAGE: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[test]
fn a_browser_gets_the_console_and_a_program_the_reference() {
    let server = Server::with_keys();
    let client = Client::new(server.url());
    let page = client.send("GET", "/", &[PAGE], &[]).expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("vary"), Some("accept"));
    let files: Vec<_> = page
        .text()
        .split('"')
        .filter(|part| part.starts_with("/console/"))
        .map(str::to_owned)
        .collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let answer = client.get(&file).expect(200);
        let tag = answer.header("etag").expect("a tag").to_owned();
        assert_eq!(answer.header("cache-control"), Some("no-cache"), "{file}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{file}");
        let again = client.send("GET", &file, &[("if-none-match", &tag)], &[]);
        assert_eq!((again.status, again.body.len()), (304, 0), "{file}");
    }
    let other = client.get("/");
    assert_eq!((other.status, other.header("location")), (303, Some("/docs")));
    for nothing in
        ["/console/", "/console/none.js", "/console/views/../app.js", "/console/%2e%2e/Cargo.toml"]
    {
        client.get(nothing).expect(404);
    }
}

#[test]
fn a_console_that_is_off_is_not_there() {
    let server = Server::start(&["--dev", "--set", "server.console=false"]);
    let client = Client::new(server.url());
    let page = client.send("GET", "/", &[PAGE], &[]);
    assert_eq!((page.status, page.header("location")), (303, Some("/docs")));
    client.get("/console/app.js").expect(404);
    client.get("/docs").expect(200);
}
