//! The server against its own document: schemathesis asks for everything that the document allows,
//! and for much that it does not, of a sandbox that runs. No answer may be a fault of the server or
//! one that the document does not tell of. `tests/schemathesis/` says what is let pass, and why.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::skip;

/// What each operation is asked with at random, beside all that follows from the document. More,
/// and from elsewhere: `just contract`.
const EXAMPLES: &str = "3";
const SEED: &str = "1";
/// The sandbox that all is asked of, as `schemathesis.toml` names it.
const SANDBOX: &str = "/v1/sandboxes/default/contract";

#[test]
fn the_document_is_what_openapi_says_it_must_be() {
    let Some(home) = home() else { return };
    let server = Server::dev();
    let document = server.scratch().join("openapi.json");
    let served = Client::new(server.url()).get("/openapi.json").expect(200);
    fs::write(&document, served.body).expect("a file");
    let mut validate = Command::new(home.join("bin/openapi-spec-validator"));
    expect_success(validate.arg(document).output().expect("it runs"));
}

/// So a client learns from the answer itself which of them it is.
#[test]
fn a_field_tells_the_members_of_each_union_of_answers_apart() {
    let server = Server::dev();
    let document = Client::new(server.url()).get("/openapi.json").expect(200).json();
    let mut wrong = Vec::new();
    unions_without_a_field(&document["components"]["schemas"], "", &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The places of unions of several named schemas without a discriminator.
fn unions_without_a_field(within: &Value, place: &str, found: &mut Vec<String>) {
    let members = within.get("oneOf").or_else(|| within.get("anyOf")).and_then(Value::as_array);
    let named = members.into_iter().flatten().filter(|one| one.get("$ref").is_some()).count();
    if named > 1 && within.get("discriminator").is_none() {
        found.push(place.to_owned());
    }
    match within {
        Value::Object(fields) => {
            for (name, field) in fields {
                unions_without_a_field(field, &format!("{place}/{name}"), found);
            }
        }
        Value::Array(members) => {
            for member in members {
                unions_without_a_field(member, place, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_server_does_what_its_document_says() {
    let Some(home) = home() else { return };
    let server = Server::with_keys();
    let key = server.ok(&["keygen", "--namespace", "*", "--scope", "admin"]);
    let client = Client::new(server.url()).key(key.trim());
    prepare(&client);
    let examples = std::env::var("BURROW_CONTRACT_EXAMPLES");
    let seed = std::env::var("BURROW_CONTRACT_SEED");
    let mut run = Command::new(home.join("bin/schemathesis"));
    // It looks for its configuration here, and must leave nothing.
    run.current_dir(ours())
        .env("HYPOTHESIS_STORAGE_DIRECTORY", server.scratch().join("hypothesis"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BURROW_TEST_KEY", key.trim())
        .args(["run", &format!("{}/openapi.json", server.url())])
        .args(["--phases", "coverage,fuzzing"])
        // One key sees all here; who may see what is tested elsewhere.
        .args(["--exclude-checks", "object_level_authorization"])
        .args(["--max-examples", examples.as_deref().unwrap_or(EXAMPLES)])
        .args(["--seed", seed.as_deref().unwrap_or(SEED)])
        .arg("--no-shrink");
    expect_success(run.output().expect("it runs"));
    client.get(SANDBOX).expect(200);
}

/// What the calls are about.
fn prepare(client: &Client) {
    let sandboxes = ["contract", "spare-1", "spare-2", "spare-3", "spare-4"];
    for name in sandboxes {
        let _ = client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
    }
    let sessions = [
        json!({ "session": "waiting", "argv": ["cat"], "stdin": true }),
        json!({ "session": "ended", "argv": ["echo", "text"] }),
        json!({ "session": "terminal", "argv": ["cat"], "terminal": { "rows": 24, "columns": 80 } }),
    ];
    for session in sessions {
        made(client, "/sessions", &session);
    }
    made(client, "/contexts/contract/run", &json!({ "code": "x = 1", "language": "python" }));
    let serve = "exec python3 -m http.server $PORT --bind 127.0.0.1";
    let app = json!({ "type": "command", "command": serve, "name": "contract" });
    made(client, "/apps", &app);
    made(client, "/files/directories", &json!({ "path": "/tmp/contract" }));
    let file = format!("{SANDBOX}/files/content?path=/tmp/contract/file");
    let octets = [("content-type", "application/octet-stream")];
    let _ = client.send("PUT", &file, &octets, b"text").expect(200);
}

fn made(client: &Client, path: &str, body: &Value) {
    let answer = client.post(&format!("{SANDBOX}{path}"), body);
    assert!(matches!(answer.status, 200 | 201 | 204), "{path}: {}", answer.text());
}

/// The environment with the tools, made if need be; without it, the test says that it does nothing.
fn home() -> Option<PathBuf> {
    let home = ours().join("../../target/schemathesis");
    let made = Command::new(ours().join("install")).arg(&home).output();
    match made {
        Ok(output) if output.status.success() => Some(home),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            skip(&format!(
                "schemathesis is not to be had: {}",
                stderr.lines().last().unwrap_or("")
            ));
            None
        }
        Err(error) => {
            skip(&format!("schemathesis cannot be installed: {error}"));
            None
        }
    }
}

fn ours() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schemathesis")
}

fn expect_success(output: Output) {
    let stderr = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&stderr));
}
