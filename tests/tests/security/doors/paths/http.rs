//! The doors of the HTTP API that take a path and answer at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use serde_json::{Value, json};
use tests::door::BOX;
use tests::http::Client;

use super::{ATTACK, DIRECTORY, Door, FILE, Host, Outcome, PROGRAM, ended, outcome};

pub(super) const HTTP: &[Door] = &[
    ("read", FILE, |host, path| outcome(&host.client.get(&at("files/content", path, "")))),
    ("read a part", FILE, |host, path| {
        let part = [("range", "bytes=0-0")];
        outcome(&host.client.send("GET", &at("files/content", path, ""), &part, &[]))
    }),
    ("read below", DIRECTORY, |host, path| {
        outcome(&host.client.get(&at("files/content", &format!("{path}/file"), "")))
    }),
    ("append", "/tmp/innocent/burrow-attack-appended", |host, path| {
        put(&host.client, "files/content", path, "&append=true", b"attack")
    }),
    ("write at an offset", "/tmp/innocent/burrow-attack-at", |host, path| {
        put(&host.client, "files/content", path, "&offset=0", b"attack")
    }),
    ("write below", DIRECTORY, |host, path| {
        put(&host.client, "files/content", &below(path), "", b"attack")
    }),
    ("write below what is made", DIRECTORY, |host, path| {
        let deep = format!("{}s/file", below(path));
        put(&host.client, "files/content", &deep, "&parents=true", b"attack")
    }),
    ("list", DIRECTORY, |host, path| outcome(&host.client.get(&at("files", path, "")))),
    ("stat", FILE, |host, path| outcome(&host.client.get(&at("files/stat", path, "&follow=true")))),
    ("stat below", DIRECTORY, |host, path| {
        outcome(&host.client.get(&at("files/stat", &format!("{path}/file"), "")))
    }),
    ("make a directory", DIRECTORY, |host, path| {
        let body = json!({ "path": format!("{}-directory", below(path)) });
        post(host, "files/directories", &body)
    }),
    ("move from below", DIRECTORY, |host, path| {
        prepare(host);
        let to = "/tmp/innocent/moved";
        post(host, "files/move", &json!({ "from": below(path), "to": to, "replace": true }))
    }),
    ("move below", DIRECTORY, |host, path| {
        prepare(host);
        let from = below(DIRECTORY);
        post(host, "files/move", &json!({ "from": from, "to": below(path) + "-moved" }))
    }),
    ("remove below", DIRECTORY, |host, path| {
        prepare(host);
        outcome(&host.client.delete(&at("files", &below(path), "&recursive=true")))
    }),
    ("watch", DIRECTORY, |host, path| watch(host, path, "")),
    ("watch all below", DIRECTORY, |host, path| watch(host, path, "&recursive=true")),
    ("download an archive", DIRECTORY, |host, path| {
        outcome(&host.client.get(&at("files/archive", path, "&follow=true")))
    }),
    ("upload an archive", DIRECTORY, |host, path| {
        put(&host.client, "files/archive", path, "", &[0; 1024])
    }),
    ("upload an archive below", DIRECTORY, |host, path| {
        put(
            &host.client,
            "files/archive",
            &format!("{}d", below(path)),
            "&parents=true",
            &[0; 1024],
        )
    }),
    ("keep an artifact", FILE, |host, path| post(host, "artifacts", &json!({ "path": path }))),
    ("exec in a directory", DIRECTORY, |host, path| {
        run(host, "exec", &json!({ "argv": ["true"], "cwd": path }))
    }),
    ("exec a program", PROGRAM, |host, path| {
        run(host, "exec", &json!({ "argv": [path, "--version"] }))
    }),
    ("shell in a directory", DIRECTORY, |host, path| {
        run(host, "shell", &json!({ "script": "true", "cwd": path }))
    }),
    ("render in a directory", DIRECTORY, |host, path| {
        run(host, "render", &json!({ "command": ["true"], "cwd": path }))
    }),
    ("start a session in a directory", DIRECTORY, |host, path| {
        post(host, "sessions", &json!({ "argv": ["true"], "cwd": path }))
    }),
    ("start a session by its shell", "/bin/sh", |host, path| {
        post(host, "sessions", &json!({ "script": "true", "shell": path }))
    }),
];

fn of(call: &str) -> String {
    format!("{BOX}/{call}")
}

fn at(call: &str, path: &str, more: &str) -> String {
    format!("{}?path={path}{more}", of(call))
}

pub(super) fn below(path: &str) -> String {
    format!("{path}/{ATTACK}")
}

/// What is moved and removed is there.
pub(super) fn prepare(host: &Host) {
    put(&host.client, "files/content", &below(DIRECTORY), "", b"attack").unwrap();
}

fn put(client: &Client, call: &str, path: &str, more: &str, body: &[u8]) -> Outcome {
    outcome(&client.send("PUT", &at(call, path, more), &[], body))
}

fn post(host: &Host, call: &str, body: &Value) -> Outcome {
    outcome(&host.client.post(&of(call), body))
}

fn run(host: &Host, call: &str, body: &Value) -> Outcome {
    ended(&host.client.post(&of(call), body))
}

/// The head tells whether it watches; what follows has no end.
fn watch(host: &Host, path: &str, more: &str) -> Outcome {
    let headers = [("accept", "application/x-ndjson")];
    let answer = host.client.open("GET", &at("files/watch", path, more), &headers, &[]);
    if answer.status == 200 { Ok(()) } else { outcome(&answer.whole()) }
}
