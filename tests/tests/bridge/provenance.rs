//! A receipt has what was put into the sandbox and sent to the program, through whichever door; and runs of contexts have
//! receipts.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::eventually;
use tests::http::Client;
use tests::mcp::{VERSION, Web};
use tests::server::Server;
use tests::ssh::Ssh;

const MULTIPART: &str = "multipart/form-data; boundary=edge";

/// The statement of the receipt of a session, which ends soon.
fn statement(client: &Client, session: &str) -> Value {
    let path = format!("{BOX}/sessions/{session}/receipt");
    let mut receipt = Value::Null;
    eventually("the end is recorded", || {
        let answer = client.get(&path);
        let is_there = answer.status == 200;
        if is_there {
            receipt = answer.json();
        }
        is_there
    });
    receipt["statement"].take()
}

/// What a session that begins and ends now says was put in: operations, paths, places, lengths and digests.
fn inputs(server: &Server, client: &Client) -> Vec<[Value; 5]> {
    server.ok(&["exec", "--session", "after", "box", "--", "true"]);
    let statement = statement(client, "after");
    let inputs = &statement["inputs"];
    assert_eq!(inputs["has_more"], false, "{inputs}");
    assert_eq!(inputs["has_unrecorded"], Value::Null, "{inputs}");
    let listed = inputs["listed"].as_array().expect("a list");
    let facts = ["operation", "path", "place", "bytes", "sha256"];
    listed.iter().map(|one| facts.map(|fact| one[fact].clone())).collect()
}

fn file(path: &str, text: &str) -> [Value; 5] {
    let bytes = json!(text.len());
    [json!("write_file"), json!(path), json!("whole"), bytes, json!(tests::sha256(text))]
}

/// A part of a form.
fn part(name: &str, more: &str, content: &str) -> String {
    let head = format!("content-disposition: form-data; name=\"{name}\"{more}");
    format!("--edge\r\n{head}\r\n\r\n{content}\r\n")
}

#[test]
fn files_of_cp_are_in_a_receipt() {
    let (server, client) = open();
    let tree = server.scratch().join("tree");
    fs::create_dir(&tree).expect("made");
    fs::write(tree.join("one"), "1\n").expect("written");
    server.ok(&["cp", tree.join("one").to_str().expect("a name"), "box:/tmp/copied"]);
    server.ok(&["cp", tree.to_str().expect("a name"), "box:/tmp/"]);
    let found = inputs(&server, &client);
    assert_eq!(found[0], file("/tmp/copied", "1\n"));
    assert_eq!(found[1][..3], [json!("unpack_files"), json!("/tmp/"), Value::Null], "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn files_of_mcp_e2b_and_daytona_are_in_a_receipt() {
    let (server, client) = open();
    let id = client.get(BOX).expect(200).json()["id"].as_str().expect("an id").to_owned();
    let mut web = Web::open(Client::new(server.url()), VERSION);
    let ask = json!({ "sandbox": "box", "path": "/tmp/mcp", "content": "mcp\n" });
    let written = web.call("write_file", &ask);
    assert_eq!(written["isError"], false, "{written}");
    let headers = [
        ("e2b-sandbox-id", id.as_str()),
        ("e2b-sandbox-port", "49983"),
        ("authorization", "Basic cm9vdDo="),
        ("content-type", "application/octet-stream"),
    ];
    let path = "/files?path=/tmp/e2b&username=root";
    client.send("POST", path, &headers, b"e2b\n").expect(200);
    let form = part("files[0].path", "", "/tmp/daytona")
        + &part("files[0].file", "; filename=\"file\"", "daytona\n")
        + "--edge--\r\n";
    let path = format!("/daytona/toolbox/{id}/files/bulk-upload");
    client.send("POST", &path, &[("content-type", MULTIPART)], form.as_bytes()).expect(200);
    let expected = [("/tmp/mcp", "mcp\n"), ("/tmp/e2b", "e2b\n"), ("/tmp/daytona", "daytona\n")];
    assert_eq!(inputs(&server, &client), expected.map(|(path, text)| file(path, text)));
}

#[test]
fn files_of_sftp_are_in_a_receipt() {
    let Some(ssh) = Ssh::open() else { return };
    fs::write(ssh.path("local"), "over ssh\n").expect("written");
    fs::write(ssh.path("batch"), "put local /tmp/sftp").expect("written");
    let put = ssh.program("sftp", &["-b", "batch", "box@burrow"]).output().expect("sftp runs");
    assert!(put.status.success(), "{put:?}");
    let found = inputs(&ssh, &Client::new(ssh.url()));
    let mut expected = file("/tmp/sftp", "over ssh\n");
    expected[2] = json!("0");
    assert_eq!(found, [expected]);
}

#[test]
fn what_was_sent_to_stdin_is_in_a_receipt_and_its_bytes_are_nowhere() {
    let (server, client) = open();
    let exec = ["exec", "-i", "--session", "fed", "box", "--", "cat"];
    let mut fed = server.command(&exec);
    let mut fed = fed.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut stdin = fed.stdin.take().expect("piped");
    stdin.write_all(b"one\n").and_then(|()| stdin.write_all(b"two\n")).expect("written");
    drop(stdin);
    assert!(fed.wait().expect("it ends").success());
    let parts = |session: &str| {
        let statement = statement(&client, session);
        assert_eq!(statement["stdin"]["has_more"], false, "{statement}");
        let listed = statement["stdin"]["listed"].as_array().expect("a list").clone();
        let facts = ["offset", "bytes", "sha256", "closed"];
        listed.iter().map(|part| facts.map(|fact| part[fact].clone())).collect::<Vec<_>>()
    };
    let sent = |offset: u64, text: &str, closed: bool| {
        [json!(offset), json!(text.len()), json!(tests::sha256(text)), json!(closed)]
    };
    assert_eq!(parts("fed"), [sent(0, "one\ntwo\n", true)]);
    // Several writers, one after the other: a part of each.
    server.ok(&["exec", "-d", "-i", "--session", "typed", "box", "--", "cat"]);
    let octets = [("content-type", "application/octet-stream")];
    let path = format!("{BOX}/sessions/typed/input");
    client.send("POST", &path, &octets, b"by\n").expect(200);
    client.send("POST", &format!("{path}?eof=true"), &octets, b"post\n").expect(200);
    assert_eq!(parts("typed"), [sent(0, "by\n", false), sent(3, "post\n", true)]);
    let boxes = fs::read_dir(server.state().join("boxes")).expect("sandboxes");
    let kept = boxes.map(|entry| entry.expect("an entry").path().join("log/provenance"));
    let kept = kept.map(|directory| directory.join("0000000001.seg")).find(|file| file.exists());
    let kept = kept.expect("a record");
    assert_eq!(fs::metadata(&kept).expect("it is there").permissions().mode() & 0o777, 0o600);
    let kept = fs::read(kept).expect("it is read");
    assert!(!kept.windows(5).any(|bytes| bytes == b"post\n"), "the bytes are kept");
    // Nothing was sent.
    server.ok(&["exec", "--session", "silent", "box", "--", "true"]);
    assert_eq!(statement(&client, "silent")["stdin"], Value::Null);
}

#[test]
fn a_receipt_says_that_input_was_still_open() {
    let (server, client) = open();
    let script = "read line; touch /tmp/has-read; until [ -e /tmp/go ]; do sleep 0.05; done";
    let exec = ["exec", "-i", "--session", "fed", "box", "--", "sh", "-c", script];
    let mut fed = server.command(&exec);
    let mut fed = fed.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let mut stdin = fed.stdin.take().expect("piped");
    stdin.write_all(b"one\n").expect("written");
    let test = json!({ "argv": ["test", "-e", "/tmp/has-read"] });
    eventually("the line is read", || {
        client.post(&format!("{BOX}/exec"), &test).expect(200).json()["exit_code"] == 0
    });
    // It does not learn of the end, so its part has none.
    let writer = Pid::from_raw(fed.id() as i32);
    kill(writer, Signal::SIGSTOP).expect("it lives");
    server.ok(&["exec", "box", "--", "touch", "/tmp/go"]);
    let open = statement(&client, "fed");
    let expected = json!({ "listed": [], "has_more": false, "is_open": true });
    assert_eq!(open["stdin"], expected, "{open}");
    kill(writer, Signal::SIGCONT).expect("it lives");
    assert!(fed.wait().expect("it ends").success());
    assert_eq!(statement(&client, "fed"), open, "it is issued once");
}

#[test]
fn a_run_of_a_context_has_a_receipt_that_is_believed_offline() {
    let (server, client) = open();
    let run = |code: &str| {
        let path = format!("{BOX}/contexts/main/run");
        let answer = client.post(&path, &json!({ "language": "python", "code": code }));
        answer.expect(200).json()
    };
    let code = "print('hello'); 6 * 7";
    let ran = run(code);
    assert_eq!(ran["status"], "ok", "{ran}");
    run("raise ValueError('no')");
    let path = format!("{BOX}/contexts/main/receipt");
    let receipt = client.get(&format!("{path}?run=1")).expect(200).json();
    let again = client.get(&format!("{path}?run=1")).expect(200).json();
    assert_eq!(again, receipt, "it is issued once");
    let statement = &receipt["statement"];
    let run = &statement["run"];
    assert_eq!((&run["context"], &run["run"]), (&json!("main"), &json!(1)));
    let digested = json!({ "bytes": code.len(), "sha256": tests::sha256(code) });
    assert_eq!(run["code"], digested, "{statement}");
    assert_eq!(statement["cause"], json!({ "ok": {} }));
    assert_eq!(statement["outputs"][0]["sha256"], tests::sha256("hello\n"));
    assert_eq!(statement["outputs"][1]["bytes"], 0);
    assert_eq!(run["displays"][0]["sha256"], tests::sha256("42"), "{run}");
    assert_eq!(statement["decisions"]["decided_for"], "sandbox");
    assert_eq!(statement["session"], Value::Null);
    // The last one, by the command line and from its own process.
    let last = server.ok(&["receipt", "box", "--context", "main"]);
    let parsed: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!(parsed["statement"]["run"]["error"], "ValueError", "{last}");
    assert_eq!(parsed["statement"]["previous"].as_str().map(str::len), Some(64));
    let printed = "print('by the command line')";
    server.ok(&["repl", "box", "--context", "main", "-c", printed]);
    let own = server.ok(&["receipt", "box", "--context", "main"]);
    let own: Value = serde_json::from_str(&own).expect("JSON");
    assert_eq!(own["statement"]["run"]["code"]["sha256"], tests::sha256(printed), "{own}");
    let key = server.ok(&["receipt", "key"]);
    let place = server.scratch().join("run.receipt");
    let verify = |text: &str| {
        fs::write(&place, text).expect("written");
        let name = place.to_str().expect("a name");
        server.run(&["receipt", "verify", "--key", key.trim(), name]).status.code()
    };
    let text = receipt.to_string();
    assert_eq!(verify(&text), Some(0));
    let (real, forged) = (tests::sha256(code), tests::sha256("print('bye'); 6 * 7"));
    assert_eq!(verify(&text.replace(&real, &forged)), Some(1));
    let missing = client.get(&format!("{path}?run=99")).expect(404).json();
    assert_eq!(missing["code"], "not_found", "{missing}");
    let missing = server.run(&["receipt", "box", "--context", "other"]);
    assert_ne!(missing.status.code(), Some(0));
}
