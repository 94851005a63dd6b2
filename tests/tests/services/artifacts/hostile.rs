//! A guest that makes of its files what it can.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::door::BOX;

use super::scene::{WORK, by_name, captured, content, left_out, names, open};

#[test]
fn links_pipes_sockets_and_devices_are_reported_as_no_artifacts() {
    let (_server, client) = open();
    let artifacts = captured(
        &client,
        "ln -s /etc/passwd passwd; ln -s /etc etc; mkfifo pipe; mknod zero c 1 5 2>/dev/null || true
         ln -s nowhere dangling; echo x > real.txt
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' || true",
    );
    assert_eq!(names(&artifacts), ["real.txt"], "{artifacts}");
    let reasons = left_out(&artifacts);
    for link in ["passwd", "etc", "dangling"] {
        assert!(reasons[&format!("{WORK}/{link}")].contains("symlink"), "{reasons:?}");
    }
    assert!(reasons[&format!("{WORK}/pipe")].contains("FIFO"), "{reasons:?}");
    assert!(!reasons.keys().any(|path| path.contains("etc/passwd")), "{reasons:?}");
}

#[test]
fn nothing_is_read_through_a_link_before_the_last_component() {
    let (_server, client) = open();
    let shell = json!({ "script": format!("ln -s /etc {WORK}/link") });
    let _ = client.post(&format!("{BOX}/shell"), &shell).expect(200);
    let keep = json!({ "path": format!("{WORK}/link/passwd") });
    let refused = client.post(&format!("{BOX}/artifacts"), &keep);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("symlink"), "{}", refused.text());
}

#[test]
fn a_vast_sparse_file_is_left_out_at_once() {
    let (_server, client) = open();
    let began = Instant::now();
    let artifacts = captured(&client, "truncate -s 1T vast.bin; echo x > small.txt");
    assert_eq!(names(&artifacts), ["small.txt"], "{artifacts}");
    let reason = &left_out(&artifacts)[&format!("{WORK}/vast.bin")];
    assert!(reason.contains("1099511627776 bytes"), "{reason}");
    assert!(began.elapsed() < tests::slowed(Duration::from_secs(10)));
}

#[test]
fn of_ten_thousand_files_some_are_kept_and_the_others_are_counted() {
    let (_server, client) = open();
    let began = Instant::now();
    let artifacts = captured(&client, "seq 10000 | xargs touch");
    assert_eq!(names(&artifacts).len(), 100, "{artifacts}");
    let reasons = left_out(&artifacts);
    assert!(reasons.values().any(|reason| reason.contains("may leave 100")), "{reasons:?}");
    assert!(reasons[WORK].contains("cut after 8192 entries"), "{reasons:?}");
    assert!(reasons["…"].contains("more were left out"), "{reasons:?}");
    assert!(began.elapsed() < tests::slowed(Duration::from_secs(60)), "{:?}", began.elapsed());
    // The next run does not take the others for its own.
    let next = captured(&client, "echo x > a-new-one.txt");
    assert!(names(&next).len() <= 100, "{next}");
}

#[test]
fn an_incomplete_scan_does_not_credit_old_files_to_a_run() {
    let (_server, client) = open();
    let script = format!("cd {WORK}; seq 9000 | xargs touch -d '2020-01-01'; sleep 0.1");
    let _ = client.post(&format!("{BOX}/shell"), &json!({ "script": script })).expect(200);
    let artifacts = captured(&client, "echo x > /artifacts/x.txt; echo new > 0-new.txt");
    assert_eq!(names(&artifacts), ["0-new.txt", "x.txt"], "{artifacts}");
    assert!(left_out(&artifacts)[WORK].contains("cut after"), "{artifacts}");
}

#[test]
fn any_name_is_a_name_and_none_is_a_path_of_the_host() {
    let (server, client) = open();
    let script = "import os
os.chdir('/tmp/work')
for name in [b'new\\nline.txt', b'quo\"te.txt', b'..dots.txt', b'bad\\xff.txt', b'a b;c$(x).txt', 'Übung.txt'.encode()]:
    open(name, 'wb').write(name)
os.makedirs(b'..d/e', exist_ok=True)
open(b'..d/e/f.txt', 'w').write('f')";
    let body = json!({ "argv": ["python3", "-c", script], "cwd": WORK, "artifacts": true });
    let answer = client.post(&format!("{BOX}/exec"), &body).expect(200).json();
    assert_eq!(answer["stderr"], "");
    let captured = &answer["captured"];
    // Names that begin with a dot are hidden.
    let expected =
        ["a b;c$(x).txt", "bad\u{fffd}.txt", "new\nline.txt", "quo\"te.txt", "Übung.txt"];
    assert_eq!(names(captured), expected, "{captured}");
    for (name, artifact) in by_name(captured) {
        let id = artifact["id"].as_str().unwrap();
        let whole = client.get(&format!("/v1/artifacts/{id}/content")).expect(200);
        let answer = whole.header("content-disposition").unwrap().to_owned();
        assert!(answer.starts_with("attachment; filename=\""), "{name}: {answer}");
        assert!(answer.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}: {answer}");
    }
    assert_eq!(content(&client, &by_name(captured)["bad\u{fffd}.txt"]), b"bad\xff.txt");
    // On the host there are digests alone.
    let mut seen = 0;
    for directory in std::fs::read_dir(server.state().join("artifacts")).unwrap().flatten() {
        for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
            let name = file.file_name().into_string().expect("UTF-8");
            assert!(
                name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{name}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, expected.len());
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_reported() {
    let (_server, client) = open();
    let artifacts = captured(
        &client,
        "head -c 60000000 /dev/zero > grows.bin
         (i=0; while [ $i -lt 300 ]; do echo x >> grows.bin; i=$((i+1)); sleep 0.01; done) >/dev/null 2>&1 &",
    );
    assert!(names(&artifacts).is_empty(), "{artifacts}");
    let reason = &left_out(&artifacts)[&format!("{WORK}/grows.bin")];
    assert!(reason.contains("changed while it was copied"), "{reason}");
}

#[test]
fn a_run_may_leave_only_so_much() {
    let (_server, client) = open();
    let artifacts = captured(&client, "for i in 1 2 3; do truncate -s 200M $i.bin; done");
    assert_eq!(names(&artifacts).len(), 2, "{artifacts}");
    let reasons = left_out(&artifacts);
    assert_eq!(reasons.len(), 1);
    assert!(reasons.values().all(|reason| reason.contains("that a run may leave")), "{reasons:?}");
}
