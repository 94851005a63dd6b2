//! What was kept of sessions is what was live: replays and exports, the comparison with the agent's digests, receipts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tests::door::{BOX, open};
use tests::eventually;
use tests::http::Client;
use tests::server::Server;

struct Stage {
    server: Server,
    client: Client,
}

impl Stage {
    fn new() -> Self {
        let (server, client) = open();
        Self { server, client }
    }

    /// Runs a script in a session of this name, on a terminal or on pipes, until its end is in the log.
    fn runs(&self, session: &str, terminal: bool, script: &str) {
        let mut arguments = vec!["exec", "-d"];
        arguments.extend(terminal.then_some("-t"));
        arguments.extend(["--session", session, "box", "--", "sh", "-c", script]);
        self.server.ok(&arguments);
        self.settle(session);
    }

    fn settle(&self, session: &str) {
        eventually("the end is recorded", || {
            let compared = self.verified("");
            let mut found = compared.iter().filter(|one| one["session"] == session);
            found.any(|one| one["ended"] == true)
        });
    }

    fn verified(&self, query: &str) -> Vec<Value> {
        let answer = self.client.get(&format!("{BOX}/verify{query}")).expect(200).json();
        answer["sessions"].as_array().expect("a list").clone()
    }

    /// The events of an export, without the first line.
    fn cast(&self, session: &str) -> (Value, Vec<Value>) {
        let cast = self.server.ok(&["replay", "box", session, "--export", "asciicast", "-"]);
        let mut lines = cast.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        (lines.next().expect("a head"), lines.collect())
    }

    fn segment(&self) -> PathBuf {
        let boxes = fs::read_dir(self.server.state().join("boxes")).expect("sandboxes");
        let logs = boxes.map(|entry| entry.expect("an entry").path().join("log"));
        let log = logs.filter(|log| log.is_dir()).last().expect("a log");
        log.join("0000000001.seg")
    }
}

/// A tar archive with one file.
fn archive_of(stage: &Stage, name: &str, text: &str) -> Vec<u8> {
    let directory = stage.server.scratch();
    fs::write(directory.join(name), text).expect("written");
    let mut tar = Command::new("tar");
    let packed = tar.arg("-cf-").arg("-C").arg(directory).arg(name).output().expect("tar runs");
    assert!(packed.status.success(), "{packed:?}");
    packed.stdout
}

fn output(events: &[Value]) -> String {
    let outputs = events.iter().filter(|event| event[1] == "o");
    outputs.map(|event| event[2].as_str().expect("text")).collect()
}

/// Two thousand lines, in some of which a character may be cut.
const LINES: &str =
    "i=0; while [ $i -lt 2000 ]; do echo \"line $i: grün ✓\"; i=$((i+1)); done; echo end >&2";

#[test]
fn a_replay_is_what_was_live_byte_for_byte() {
    let stage = Stage::new();
    let live = stage.server.run(&["exec", "box", "--", "sh", "-c", LINES]);
    assert!(live.status.success());
    eventually("the end is recorded", || stage.verified("").iter().any(|one| one["ended"] == true));
    let session = stage.verified("")[0]["session"].as_str().expect("a name").to_owned();
    let is_the_same = || {
        let replayed = stage.server.run(&["replay", "--speed", "0", "box", &session]);
        assert!(replayed.status.success(), "{replayed:?}");
        assert!(replayed.stdout == live.stdout && replayed.stderr == live.stderr);
        let (_, events) = stage.cast(&session);
        let both = [live.stdout.clone(), live.stderr.clone()].concat();
        let mut shown = output(&events).replace("\r\n", "\n").into_bytes();
        // The two outputs have no order between them.
        let mut both = both;
        shown.sort_unstable();
        both.sort_unstable();
        assert!(shown == both);
        let page = stage.server.ok(&["replay", "box", &session, "--export", "html", "-"]);
        assert!(page.contains("default-src 'none'"));
    };
    is_the_same();
    stage.server.ok(&["stop", "box"]);
    is_the_same();
}

#[test]
fn a_replay_begins_at_a_time_or_an_offset() {
    let stage = Stage::new();
    stage.runs("build", false, "printf 0123456789");
    let from =
        |place: &str| stage.server.ok(&["replay", "--speed", "0", "--from", place, "box", "build"]);
    assert_eq!(from("@4"), "456789");
    assert_eq!(from("1h"), "");
    assert_eq!(from("2020-01-01"), "0123456789");
}

#[test]
fn an_export_of_a_terminal_has_its_bytes_and_its_sizes() {
    let stage = Stage::new();
    let script = "printf '\\033[1mgrün\\033[0m ✓\\n'; read line; echo done";
    let start = ["exec", "-d", "-t", "--session", "demo", "box", "--", "sh", "-c", script];
    stage.server.ok(&start);
    let log = || {
        let page = stage.client.get(&format!("{BOX}/logs?session=demo")).expect(200).json();
        page["entries"].as_array().expect("a list").clone()
    };
    let has = |kind: &str| log().iter().filter(|entry| entry["type"] == kind).count();
    eventually("it has written", || has("output") > 0);
    let sized = serde_json::json!({ "rows": 33, "columns": 101 });
    let _ = stage.client.post(&format!("{BOX}/sessions/demo/resize"), &sized).expect(204);
    let is_sized = |entry: &Value| entry["rows"] == 33 && entry["columns"] == 101;
    eventually("the size is recorded", || log().iter().any(is_sized));
    let headers = [("content-type", "application/octet-stream")];
    let path = format!("{BOX}/sessions/demo/input");
    let _ = stage.client.send("POST", &path, &headers, b"x\n").expect(200);
    stage.settle("demo");
    let live: String = log().iter().filter_map(|entry| entry["text"].as_str()).collect();
    let (head, events) = stage.cast("demo");
    assert_eq!(head["version"], 2);
    assert_eq!(output(&events), live);
    assert!(live.contains("grün") && live.ends_with("done\r\n"), "{live:?}");
    assert!(events.iter().any(|event| event[1] == "r" && event[2] == "101x33"), "{events:?}");
}

#[test]
fn what_was_kept_is_equal_to_the_agents_digests_and_one_flipped_bit_is_found() {
    let stage = Stage::new();
    stage.runs("pipes", false, LINES);
    stage.runs("terminal", true, "seq 1 500");
    stage.runs("silent", false, ":");
    for one in stage.verified("") {
        for output in one["outputs"].as_array().expect("a list") {
            assert_eq!(output["finding"], "equal", "{one}");
        }
    }
    let verified = stage.server.run(&["verify", "box"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    stage.server.ok(&["stop", "box"]);
    let whole = fs::read(stage.segment()).expect("the log");
    let needle = b"line 1234:";
    let at = whole.windows(needle.len()).position(|window| window == needle).expect("it is there");
    let mut flipped = whole;
    flipped[at] ^= 1;
    fs::write(stage.segment(), flipped).expect("written");
    let verified = stage.server.run(&["verify", "--json", "box", "pipes"]);
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    let found: Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    assert_eq!(found[0]["outputs"][0]["finding"], "damaged", "{found}");
    assert_eq!(stage.server.run(&["verify", "box", "terminal"]).status.code(), Some(0));
}

#[test]
fn a_receipt_is_believed_offline_and_a_changed_one_is_not() {
    let stage = Stage::new();
    stage.runs("build", false, "echo built");
    stage.runs("later", false, "exit 3");
    let path = |session: &str| format!("{BOX}/sessions/{session}/receipt");
    let receipt = stage.client.get(&path("build")).expect(200).json();
    assert_eq!(stage.client.get(&path("build")).expect(200).json(), receipt, "it is issued once");
    let statement = &receipt["statement"];
    assert_eq!((&statement["session"], &statement["exit_code"]), (&"build".into(), &0.into()));
    assert_eq!(statement["outputs"][0]["sha256"], tests::sha256("built\n"));
    // Not the session's alone, and it says so.
    assert_eq!(statement["decisions"]["decided_for"], "sandbox", "{statement}");
    let later = stage.server.ok(&["receipt", "box", "later"]);
    let files = [("build", receipt.to_string()), ("later", later)].map(|(name, text)| {
        let file = stage.server.scratch().join(name);
        fs::write(&file, text).expect("written");
        file.to_str().expect("a name").to_owned()
    });
    let key = stage.server.ok(&["receipt", "key"]);
    let verify = |files: &[&str]| {
        let check = ["receipt", "verify", "--key", key.trim()];
        stage.server.run(&[&check[..], files].concat()).status.code()
    };
    let [build, later] = &files;
    assert_eq!(verify(&[build, later]), Some(0));
    assert_eq!(verify(&[later, build]), Some(1), "they are a chain");
    let forged = receipt.to_string().replace("\"exit_code\":0", "\"exit_code\":1");
    fs::write(build, forged).expect("written");
    assert_eq!(verify(&[build]), Some(1));
    let mode = fs::metadata(stage.server.state().join("receipts/key.pk8")).expect("a key");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    eventually("the audit log has them", || {
        let audit = stage.server.ok(&["audit", "--json", "--operation", "receipt.issued"]);
        audit.lines().count() == 2
    });
    let _ = stage.client.get(&path("nothing")).expect(404);
}

#[test]
fn a_receipt_has_what_was_put_into_the_sandbox_before_the_end() {
    let stage = Stage::new();
    let put = |place: &str, body: &str| {
        let path = format!("{BOX}/files/{place}");
        stage.client.send("PUT", &path, &[], body.as_bytes()).expect(200);
    };
    put("content?path=/tmp/data.csv", "1,2\n");
    put("content?path=/tmp/data.csv&append=true", "3,4\n");
    put("content?path=/tmp/data.csv&offset=8", "5,6\n");
    let _ = stage.client.send("PUT", &format!("{BOX}/files/content?path=/"), &[], b"no");
    let archive = archive_of(&stage, "in.txt", "packed\n");
    let unpack = format!("{BOX}/files/archive?path=/tmp");
    stage.client.send("PUT", &unpack, &[], &archive).expect(200);
    stage.runs("sum", false, "cat /tmp/data.csv /tmp/in.txt");
    put("content?path=/tmp/later.csv", "too late\n");
    let path = format!("{BOX}/sessions/sum/receipt");
    let receipt = stage.client.get(&path).expect(200).json();
    let inputs = &receipt["statement"]["inputs"];
    assert_eq!(inputs["has_more"], false, "{receipt}");
    let listed = inputs["listed"].as_array().expect("a list");
    let facts = ["operation", "path", "place", "bytes", "sha256"];
    let found: Vec<_> = listed.iter().map(|one| facts.map(|fact| one[fact].clone())).collect();
    let file = |place: &str, text: &str| {
        let digest = tests::sha256(text);
        ["write_file", "/tmp/data.csv", place, "4", &digest].map(|fact| match fact {
            "4" => Value::from(4),
            text => text.into(),
        })
    };
    assert_eq!(found[..3], [file("whole", "1,2\n"), file("append", "3,4\n"), file("8", "5,6\n")]);
    assert_eq!((&found[3][0], &found[3][1]), (&"unpack_files".into(), &"/tmp".into()));
    assert_eq!((&found[3][2], &found[3][3]), (&Value::Null, &archive.len().into()));
    assert_eq!(found.len(), 4, "a refused one and a later one are not there: {inputs}");
    // All of it is signed.
    let key = stage.server.ok(&["receipt", "key"]);
    let file = stage.server.scratch().join("sum");
    let name = file.to_str().expect("a name");
    let verify = |text: &str| {
        fs::write(&file, text).expect("written");
        stage.server.run(&["receipt", "verify", "--key", key.trim(), name]).status.code()
    };
    let text = receipt.to_string();
    assert_eq!(verify(&text), Some(0));
    assert_eq!(verify(&text.replace("/tmp/data.csv", "/tmp/date.csv")), Some(1));
    assert_eq!(verify(&text.replace(&tests::sha256("1,2\n"), &tests::sha256("1,3\n"))), Some(1));
}

#[test]
fn a_session_that_runs_has_no_receipt_and_is_not_judged() {
    let stage = Stage::new();
    stage.server.ok(&["exec", "-d", "--session", "busy", "box", "--", "sleep", "1000"]);
    eventually("it is recorded", || !stage.verified("").is_empty());
    let refused = stage.client.get(&format!("{BOX}/sessions/busy/receipt")).expect(409).json();
    assert_eq!(refused["code"], "conflict", "{refused}");
    assert_eq!(stage.verified("?session=busy")[0]["ended"], false);
    assert_eq!(stage.server.run(&["verify", "box"]).status.code(), Some(0));
}
