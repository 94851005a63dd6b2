//! Files of a run's directories.

use serde_json::json;
use tests::door::BOX;

use super::scene::{WORK, by_name, captured, content, left_out, names, open};

#[test]
fn new_and_changed_files_are_kept_and_unchanged_ones_are_not() {
    let (_server, client) = open();
    let first = captured(&client, "echo one > a.txt; echo two > b.csv; : > marker");
    assert_eq!(names(&first), ["a.txt", "b.csv", "marker"], "{first}");
    assert!(left_out(&first).is_empty(), "{first}");
    let artifacts = by_name(&first);
    let a = &artifacts["a.txt"];
    assert_eq!(a["path"], format!("{WORK}/a.txt"));
    assert_eq!((&a["type"], &a["category"]), (&json!("text/plain"), &json!("text")));
    assert_eq!((&a["size"], &a["sandbox"]), (&json!(4), &json!("box")));
    assert_eq!(a["namespace"], "default");
    assert_eq!(artifacts["b.csv"]["category"], "data");
    assert_eq!(content(&client, a), b"one\n");

    let second = captured(&client, "cat a.txt; echo more >> b.csv; : > a.txt");
    assert_eq!(names(&second), ["b.csv"], "one was emptied, one is as it was: {second}");
    assert_eq!(content(&client, &by_name(&second)["b.csv"]), b"two\nmore\n");
    // What was kept stays what it was.
    assert_eq!(content(&client, &artifacts["b.csv"]), b"two\n");
    assert!(names(&captured(&client, "true")).is_empty());
}

#[test]
fn without_being_asked_nothing_is_kept() {
    let (_server, client) = open();
    let body = json!({ "script": "echo x > x.txt", "cwd": WORK });
    let answer = client.post(&format!("{BOX}/shell"), &body).expect(200).json();
    assert!(answer.get("captured").is_none(), "{answer}");
    assert!(super::scene::listed(&client, "").is_empty());
}

#[test]
fn directories_below_are_looked_into_and_what_is_nobodys_result_is_passed_over() {
    let (_server, client) = open();
    let artifacts = captured(
        &client,
        "mkdir -p out/deep .cache __pycache__ node_modules/x .git
         echo 1 > out/deep/r.json; echo 2 > .cache/a; echo 3 > __pycache__/m.pyc
         echo 4 > node_modules/x/i.js; echo 5 > .git/HEAD; echo 6 > n.txt~; echo 7 > m.pyc",
    );
    assert_eq!(names(&artifacts), ["r.json"], "{artifacts}");
    assert_eq!(by_name(&artifacts)["r.json"]["path"], format!("{WORK}/out/deep/r.json"));
    assert!(left_out(&artifacts).is_empty(), "{artifacts}");
}

#[test]
fn the_artifacts_own_directory_is_looked_at_wherever_a_run_begins() {
    let (_server, client) = open();
    let artifacts = captured(&client, "echo x > /artifacts/x.txt; echo y > /tmp/elsewhere.txt");
    assert_eq!(names(&artifacts), ["x.txt"], "{artifacts}");
    let body = json!({
        "script": "mkdir -p /tmp/mine && echo z > $BURROW_ARTIFACTS_DIR/z.txt; echo n > /artifacts/n",
        "cwd": WORK, "env": { "BURROW_ARTIFACTS_DIR": "/tmp/mine" }, "artifacts": true
    });
    let answer = client.post(&format!("{BOX}/shell"), &body).expect(200).json();
    assert_eq!(names(&answer["captured"]), ["z.txt"], "{answer}");
}

#[test]
fn of_the_root_of_the_file_system_only_what_is_new_is_looked_into() {
    let (_server, client) = open();
    let body = json!({
        "cwd": "/",
        "argv": ["sh", "-c", "echo a > /root-a.txt; mkdir /new && echo b > /new/b.txt; \
                  mkdir -p /usr/x && echo c > /usr/x/c.txt"],
        "artifacts": true
    });
    let began = std::time::Instant::now();
    let answer = client.post(&format!("{BOX}/exec"), &body).expect(200).json();
    assert_eq!(names(&answer["captured"]), ["b.txt", "root-a.txt"], "{answer}");
    assert!(left_out(&answer["captured"]).is_empty(), "{answer}");
    assert!(began.elapsed() < tests::slowed(std::time::Duration::from_secs(5)));
}

#[test]
fn a_type_is_recognised_by_the_content_and_else_by_the_name() {
    let (_server, client) = open();
    let ran = captured(
        &client,
        "printf '\\211PNG\\r\\n\\032\\n....' > picture.txt; printf '%s' '%PDF-1.4' > paper
         echo 'print(1)' > x.py; printf '\\000\\001' > blob; echo '<svg/>' > d.svg
         printf 'PK\\003\\004' > t.zip; printf '....ftypisom' > f",
    );
    let artifacts = by_name(&ran);
    let kinds: Vec<_> = artifacts
        .iter()
        .map(|(name, one)| (name.as_str(), one["type"].clone(), one["category"].clone()))
        .collect();
    let expected = [
        ("blob", "application/octet-stream", "other"),
        ("d.svg", "image/svg+xml", "image"),
        ("f", "video/mp4", "video"),
        ("paper", "application/pdf", "document"),
        ("picture.txt", "image/png", "image"),
        ("t.zip", "application/zip", "archive"),
        ("x.py", "text/x-python", "code"),
    ];
    let expected = expected.map(|(name, kind, category)| (name, json!(kind), json!(category)));
    assert_eq!(kinds, expected);
}

#[test]
fn a_stream_tells_of_artifacts_before_the_end() {
    let (_server, client) = open();
    let body = json!({ "script": "echo x > x.txt", "cwd": WORK, "artifacts": true });
    let lines: Vec<_> = client.lines(&format!("{BOX}/shell"), Some(&body)).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "artifacts", "exited"], "{lines:?}");
    assert_eq!(names(&lines[1]["captured"]), ["x.txt"]);

    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    let script = json!({ "script": "echo y > y.txt", "cwd": WORK, "artifacts": true });
    socket.tell(&script);
    assert_eq!(socket.hear_value()["type"], "started");
    assert_eq!(names(&socket.hear_value()["captured"]), ["y.txt"]);
    assert_eq!(socket.hear_value()["type"], "exited");
}

#[test]
fn a_file_is_kept_by_hand() {
    let (_server, client) = open();
    captured(&client, "true");
    let shell = json!({ "script": format!("cd {WORK}; echo x > x.txt; mkdir d; ln -s x.txt l; ln -s d s") });
    let _ = client.post(&format!("{BOX}/shell"), &shell).expect(200);
    let keep = |path: &str| client.post(&format!("{BOX}/artifacts"), &json!({ "path": path }));
    let artifact = keep(&format!("{WORK}/x.txt")).expect(201).json();
    assert_eq!(content(&client, &artifact), b"x\n");
    assert_eq!(keep(&format!("{WORK}/no-such")).expect(404).code(), "not_found");
    assert_eq!(keep(&format!("{WORK}/d")).expect(400).code(), "invalid");
    assert_eq!(keep(&format!("{WORK}/l")).expect(400).code(), "invalid");
    assert_eq!(keep("/dev/null").expect(400).code(), "invalid");
    let _ = keep(&format!("{WORK}/../work/x.txt")).expect(400);
}
