//! Files through the server's door: any size, ranges, uploads that are gone on with, trees,
//! archives, watches; and what is left of those that break off.

use std::io::{Read, Write};
use std::net::Shutdown;

use serde_json::{Value, json};
use tests::door::{BOX, open, open_with};
use tests::http::{Answer, Client};
use tests::{eventually, resident_bytes};

const MIB: u64 = 1024 * 1024;

fn content(path: &str, more: &str) -> String {
    format!("{BOX}/files/content?path={path}{more}")
}

fn put(client: &Client, path: &str, more: &str, bytes: &[u8]) -> Answer {
    client.send("PUT", &content(path, more), &[], bytes)
}

fn read(client: &Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    client.send("GET", &content(path, ""), headers, &[])
}

fn head(client: &Client, path: &str) -> Answer {
    client.send("HEAD", &content(path, ""), &[], &[])
}

/// The names in a directory.
fn names(client: &Client, path: &str) -> Vec<String> {
    let page = client.get(&format!("{BOX}/files?path={path}")).expect(200).json();
    let entries = page["entries"].as_array().expect("a list");
    entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
}

/// Bytes that are not the same anywhere near.
fn block(number: u64, bytes: usize) -> Vec<u8> {
    let at = |at: u64| ((number * 8191 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    (0..bytes as u64).map(at).collect()
}

/// When a range may be asked for by its tag.
fn settled_tag(client: &Client, path: &str) -> String {
    let mut tag = String::new();
    eventually("the file has settled", || {
        let looked = head(client, path).expect(200);
        looked.header("etag").expect("a tag").clone_into(&mut tag);
        !tag.starts_with("W/")
    });
    tag
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let (_server, client) = open();
    let bytes = block(1, 1_000_000);
    let written = put(&client, "/tmp/one", "&permissions=600", &bytes).expect(200).json();
    assert_eq!(written, json!({ "bytes": 1_000_000 }));
    let whole = read(&client, "/tmp/one", &[]).expect(200);
    assert!(whole.body == bytes, "the bytes differ");
    assert_eq!(whole.header("content-length"), Some("1000000"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    let looked = head(&client, "/tmp/one").expect(200);
    assert_eq!(looked.header("content-length"), Some("1000000"));
    assert_eq!(looked.header("burrow-file-bytes"), Some("1000000"));
    let stat = client.get(&format!("{BOX}/files/stat?path=/tmp/one")).expect(200).json();
    assert_eq!((&stat["permissions"], &stat["kind"]), (&json!("0600"), &json!("file")));
    // Nothing, and what the kernel makes up, are files too.
    put(&client, "/tmp/none", "", b"").expect(200);
    let nothing = head(&client, "/tmp/none").expect(200);
    assert_eq!(nothing.header("burrow-file-bytes"), Some("0"));
    assert!(read(&client, "/tmp/none", &[]).expect(200).body.is_empty());
    let made_up = read(&client, "/proc/net/tcp", &[("range", "bytes=0-3")]).expect(200);
    assert!(made_up.text().starts_with("  sl"));
    assert_eq!(made_up.header("accept-ranges"), Some("none"));
    let refused = read(&client, "/proc/self/status", &[]).expect(403);
    assert!(refused.text().contains("is on a kernel file system (proc)"), "{}", refused.text());
}

#[test]
fn one_range_is_given_and_others_are_as_if_they_were_not_there() {
    let (_server, client) = open();
    put(&client, "/tmp/ten", "", b"0123456789").expect(200);
    let some = |range: &str| read(&client, "/tmp/ten", &[("range", range)]);
    for (range, part, bytes) in [
        ("bytes=2-4", "bytes 2-4/10", "234"),
        ("bytes=7-", "bytes 7-9/10", "789"),
        ("bytes=-2", "bytes 8-9/10", "89"),
        ("bytes=0-99", "bytes 0-9/10", "0123456789"),
        ("bytes=-99", "bytes 0-9/10", "0123456789"),
    ] {
        let answer = some(range).expect(206);
        assert_eq!(answer.header("content-range"), Some(part), "{range}");
        assert_eq!(answer.text(), bytes, "{range}");
        assert_eq!(answer.header("burrow-file-bytes"), Some("10"));
    }
    for range in ["bytes=0-1,4-5", "bytes=4-2", "lines=1-2", "bytes=x-y"] {
        assert_eq!(some(range).expect(200).text(), "0123456789", "{range}");
    }
    for range in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
        let answer = some(range).expect(416);
        assert_eq!(answer.header("content-range"), Some("bytes */10"), "{range}");
        assert_eq!(
            (answer.code(), &answer.json()["details"]["bytes"]),
            ("range_not_satisfiable".to_owned(), &json!(10))
        );
    }
}

#[test]
fn a_range_of_a_file_that_has_changed_is_all_of_it() {
    let (_server, client) = open();
    put(&client, "/tmp/ten", "", b"0123456789").expect(200);
    let fresh = head(&client, "/tmp/ten").header("etag").expect("a tag").to_owned();
    let some = |tag: &str| read(&client, "/tmp/ten", &[("range", "bytes=5-"), ("if-range", tag)]);
    if fresh.starts_with("W/") {
        assert_eq!(some(&fresh).status, 200, "a weak tag matches nothing");
    }
    let tag = settled_tag(&client, "/tmp/ten");
    assert_eq!(some(&tag).expect(206).text(), "56789");
    put(&client, "/tmp/ten", "", b"abcdefghijk").expect(200);
    assert_eq!(some(&tag).expect(200).text(), "abcdefghijk");
}

#[test]
fn file_errors_are_distinguished() {
    let (_server, client) = open();
    put(&client, "/tmp/here", "", b"x").expect(200);
    for (path, status, code) in [
        ("/tmp/missing", 404, "not_found"),
        ("/tmp", 400, "invalid"),
        ("relative", 400, "invalid"),
        ("/tmp/here/below", 422, "io"),
        ("/dev/null", 400, "invalid"),
        ("%ff", 400, "invalid"),
    ] {
        let answer = read(&client, path, &[]).expect(status);
        assert_eq!(answer.code(), code, "{path}");
    }
    assert_eq!(put(&client, "/tmp/here", "&create_only=true", b"y").expect(409).code(), "conflict");
    assert_eq!(put(&client, "/tmp/no/where", "", b"y").expect(404).code(), "not_found");
    assert_eq!(put(&client, "/tmp", "", b"y").expect(400).code(), "invalid");
    put(&client, "/tmp/no/where", "&parents=true", b"y").expect(200);
    for query in [
        "&append=true&offset=0",
        "&append=true&create_only=true",
        "&offset=1&create_only=true",
        "&permissions=9",
        "&mode=1",
    ] {
        assert_eq!(put(&client, "/tmp/here", query, b"y").expect(400).code(), "invalid", "{query}");
    }
    assert_eq!(read(&client, "/tmp/here", &[]).text(), "x");
    let nameless = client.get(&format!("{BOX}/files/content")).expect(400);
    assert!(nameless.text().contains("path_base64"), "{}", nameless.text());
}

#[test]
fn an_upload_is_gone_on_with_from_where_it_was() {
    let (_server, client) = open();
    let bytes = block(2, 3_000_000);
    // An older and longer file leaves nothing behind the new end.
    put(&client, "/tmp/up", "", &block(3, 4_000_000)).expect(200);
    let mut stream = client.raw();
    let request = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000000\r\n\r\n",
        content("/tmp/up", "&offset=0")
    );
    stream.write_all(request.as_bytes()).expect("taken");
    stream.write_all(&bytes[..1_500_000]).expect("taken");
    let mut arrived = 0;
    eventually("a part has arrived", || {
        let output = head(&client, "/tmp/up");
        arrived = output.header("burrow-file-bytes").expect("a size").parse().expect("a number");
        (1_000_000..=1_500_000).contains(&arrived)
    });
    drop(stream);
    let rest = put(&client, "/tmp/up", &format!("&offset={arrived}"), &bytes[arrived..]);
    assert_eq!(rest.expect(200).json(), json!({ "bytes": bytes.len() - arrived }));
    assert!(read(&client, "/tmp/up", &[]).body == bytes, "the bytes differ");
    let behind = put(&client, "/tmp/up", "&offset=3000001", b"x").expect(409);
    assert_eq!(
        behind.json()["details"],
        json!({ "reason": "offset_behind_end", "bytes": 3_000_000 })
    );
    put(&client, "/tmp/up", "&append=true", b"end").expect(200);
    assert_eq!(read(&client, "/tmp/up", &[("range", "bytes=-3")]).expect(206).text(), "end");
}

#[test]
fn an_upload_that_breaks_off_leaves_what_was_there() {
    let (_server, client) = open();
    client.post(&format!("{BOX}/files/directories"), &json!({ "path": "/tmp/dir" })).expect(204);
    put(&client, "/tmp/dir/file", "", b"old").expect(200);
    for framing in
        ["content-length: 3000000\r\n\r\n", "transfer-encoding: chunked\r\n\r\nfffff\r\n"]
    {
        for how in [None, Some(Shutdown::Write)] {
            let mut stream = client.raw();
            let request = format!(
                "PUT {} HTTP/1.1\r\nhost: localhost\r\n{framing}",
                content("/tmp/dir/file", "")
            );
            stream.write_all(request.as_bytes()).expect("taken");
            stream.write_all(&block(4, 1_000_000)).expect("taken");
            eventually("it is on its way", || names(&client, "/tmp/dir").len() == 2);
            if let Some(how) = how {
                stream.shutdown(how).expect("it is open");
            } else {
                drop(stream);
            }
            eventually("nothing is left of it", || names(&client, "/tmp/dir") == ["file"]);
        }
    }
    assert_eq!(read(&client, "/tmp/dir/file", &[]).text(), "old");
}

#[test]
fn a_body_that_is_not_what_its_digest_says_is_not_put_in_place() {
    const ABC: &str = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
    let (_server, client) = open();
    client.post(&format!("{BOX}/files/directories"), &json!({ "path": "/tmp/dir" })).expect(204);
    let put = |more: &str, body: &[u8], digest: &str| {
        let headers = [("content-digest", digest)];
        client.send("PUT", &content("/tmp/dir/abc", more), &headers, body)
    };
    put("", b"abc", ABC).expect(200);
    let damaged = put("", b"abd", ABC).expect(400);
    assert!(damaged.json()["details"]["content_digest"].is_string(), "{}", damaged.text());
    for (more, digest) in
        [("", "md5=:AA==:"), ("", "sha-256=abc"), ("&append=true", ABC), ("&offset=0", ABC)]
    {
        assert_eq!(put(more, b"abc", digest).expect(400).code(), "invalid", "{more} {digest}");
    }
    assert_eq!(read(&client, "/tmp/dir/abc", &[]).text(), "abc");
    eventually("nothing is left of it", || names(&client, "/tmp/dir") == ["abc"]);
}

#[test]
fn names_that_are_not_utf8_are_named_in_base64() {
    let (server, client) = open();
    server.ok(&[
        "exec",
        "box",
        "--",
        "sh",
        "-c",
        r"mkdir /tmp/d; printf odd > $(printf '/tmp/d/\377'); ln -s $(printf '\376') /tmp/d/link",
    ]);
    let page = client.get(&format!("{BOX}/files?path=/tmp/d")).expect(200).json();
    let (link, odd) = (&page["entries"][0], &page["entries"][1]);
    assert_eq!((&link["kind"], &link["target_base64"]), (&json!("symlink"), &json!("/g==")));
    assert_eq!((&odd["name"], &odd["name_base64"]), (&json!("\u{fffd}"), &json!("/w==")));
    // `/tmp/d/\xff`.
    let whole = "L3RtcC9kL_8";
    let at = |query: &str| format!("{BOX}/files/content?path_base64={query}");
    assert_eq!(client.get(&at(whole)).expect(200).text(), "odd");
    assert_eq!(client.get(&at("L3RtcC9kL%2f8=")).expect(200).text(), "odd");
    let moving = json!({ "from": { "base64": "L3RtcC9kL/8=" }, "to": "/tmp/d/plain" });
    client.post(&format!("{BOX}/files/move"), &moving).expect(204);
    assert_eq!(read(&client, "/tmp/d/plain", &[]).text(), "odd");
}

#[test]
fn a_directory_is_listed_page_by_page() {
    let (server, client) = open();
    server.ok(&[
        "exec",
        "box",
        "--",
        "sh",
        "-c",
        "mkdir /tmp/many; cd /tmp/many; seq -w 2500 | xargs touch",
    ]);
    for limit in ["", "&limit=7", "&limit=1000"] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page =
                client.get(&format!("{BOX}/files?path=/tmp/many{limit}{after}")).expect(200).json();
            found.extend(
                page["entries"]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(|entry| entry["name"].clone()),
            );
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        let all: Vec<Value> = (1..=2500).map(|number| json!(format!("{number:04}"))).collect();
        assert!(found == all, "{limit}: {} names", found.len());
    }
    for wrong in ["&limit=0", "&limit=1025", "&after=xyz", "&after=0"] {
        client.get(&format!("{BOX}/files?path=/tmp/many{wrong}")).expect(400);
    }
}

#[test]
fn trees_are_made_moved_and_removed() {
    let (_server, client) = open();
    let post = |what: &str, value: Value| client.post(&format!("{BOX}/files/{what}"), &value);
    post("directories", json!({ "path": "/tmp/a/b" })).expect(404);
    post("directories", json!({ "path": "/tmp/a/b", "parents": true, "permissions": "700" }))
        .expect(204);
    post("directories", json!({ "path": "/tmp/a/b" })).expect(409);
    let stat = client.get(&format!("{BOX}/files/stat?path=/tmp/a/b")).expect(200).json();
    assert_eq!((&stat["kind"], &stat["permissions"]), (&json!("directory"), &json!("0700")));
    put(&client, "/tmp/a/b/file", "", b"x").expect(200);
    put(&client, "/tmp/other", "", b"y").expect(200);
    let moving = json!({ "from": "/tmp/a/b/file", "to": "/tmp/other" });
    assert_eq!(post("move", moving).expect(409).code(), "conflict");
    post("move", json!({ "from": "/tmp/a/b/file", "to": "/tmp/other", "replace": true }))
        .expect(204);
    assert_eq!(read(&client, "/tmp/other", &[]).text(), "x");
    let remove = |query: &str| client.delete(&format!("{BOX}/files?path={query}"));
    assert_eq!(remove("/tmp/a").expect(422).code(), "io");
    remove("/tmp/a&recursive=true").expect(204);
    remove("/tmp/a").expect(404);
    post("directories", json!({ "path": "/tmp/x", "mode": 1 })).expect(400);
    post("directories", json!({ "path": ["/tmp/x"] })).expect(400);
}

#[test]
fn a_tree_goes_out_as_an_archive_and_in_again() {
    let (server, client) = open();
    server.ok(&["exec", "box", "--", "sh", "-c", "mkdir -p /tmp/t/sub; echo one > /tmp/t/one; ln -s one /tmp/t/sub/link; chmod 750 /tmp/t/sub"]);
    let packed = client.get(&format!("{BOX}/files/archive?path=/tmp/t")).expect(200);
    assert_eq!(packed.header("content-type"), Some("application/x-tar"));
    let at = |path: &str, more: &str| format!("{BOX}/files/archive?path={path}{more}");
    let unpacked = client.send("PUT", &at("/tmp/new", "&parents=true"), &[], &packed.body);
    let unpacked = unpacked.expect(200).json();
    assert_eq!(unpacked, json!({ "bytes": 4, "entries": 4 }));
    assert_eq!(read(&client, "/tmp/new/t/sub/../one", &[]).text(), "one\n");
    let stat = client.get(&format!("{BOX}/files/stat?path=/tmp/new/t/sub")).expect(200).json();
    assert_eq!(stat["permissions"], "0750");
    client.get(&format!("{BOX}/files/archive?path=/tmp/missing")).expect(404);
    let torn = client.send("PUT", &at("/tmp/torn", "&parents=true"), &[], &packed.body[..700]);
    assert_eq!(torn.expect(400).code(), "invalid");
    let garbage = client.send("PUT", &at("/tmp", ""), &[], &block(5, 2048));
    assert_eq!(garbage.expect(400).code(), "invalid");
}

#[test]
fn changes_are_reported_as_they_happen() {
    let (_server, client) = open();
    client.post(&format!("{BOX}/files/directories"), &json!({ "path": "/tmp/w" })).expect(204);
    let path = format!("{BOX}/files/watch?path=/tmp/w&recursive=true");
    let mut lines = client.lines(&path, None);
    assert_eq!(lines.status, 200);
    let mut socket = client.websocket(&path, &[]);
    put(&client, "/tmp/w/file", "&offset=0", b"x").expect(200);
    let is_of_file = |change: &Value| change["type"] == "modified" && change["path"] == "file";
    assert!(lines.any(|change| is_of_file(&change)));
    while !is_of_file(&socket.hear_value()) {}
    let moving = json!({ "from": "/tmp/w/file", "to": "/tmp/w/new" });
    client.post(&format!("{BOX}/files/move"), &moving).expect(204);
    let moved = lines.find(|change| change["type"] == "moved");
    assert_eq!(moved, Some(json!({ "type": "moved", "path": "new", "from": "file" })));
    client.delete(&format!("{BOX}/files?path=/tmp/w&recursive=true")).expect(204);
    let last = lines.last();
    assert_eq!(last, Some(json!({ "type": "ended" })));
    while socket.hear_value()["type"] != "ended" {}
    client.get(&format!("{BOX}/files/watch?path=/tmp/w")).expect(404);
}

#[test]
fn a_sandbox_is_idle_again_when_its_watcher_is_gone() {
    let (_server, client) = open_with(&json!({ "idle_ttl_ms": 600_000 }));
    let is_idle = || client.get(BOX).json()["idle_since_ms"].is_number();
    let lines = client.lines(&format!("{BOX}/files/watch?path=/tmp"), None);
    assert!(!is_idle());
    drop(lines);
    eventually("the watch has ended", is_idle);
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    let (_server, client) = open_with(&json!({ "scratch_bytes": 4 * MIB }));
    client
        .post(&format!("{BOX}/files/directories"), &json!({ "path": "/var/d", "parents": true }))
        .expect(204);
    let full = put(&client, "/var/d/large", "", &block(6, 8 * MIB as usize)).expect(422);
    assert_eq!(full.code(), "io");
    assert!(full.text().contains("no space is left"), "{}", full.text());
    assert!(full.text().contains("scratch_bytes"), "{}", full.text());
    assert_eq!(full.json()["details"]["errno"], 28);
    eventually("nothing is left of it", || names(&client, "/var/d").is_empty());
    put(&client, "/var/d/small", "", &block(7, MIB as usize)).expect(200);
}

#[test]
fn a_file_of_any_size_takes_no_memory_of_the_bridge() {
    const BLOCK: usize = MIB as usize;
    const BLOCKS: u64 = 200;
    let (server, client) = open();
    // What is used once stays used, and is not what is measured.
    put(&client, "/var/tmp/warm", "&parents=true", &block(8, 8 * BLOCK)).expect(200);
    read(&client, "/var/tmp/warm", &[]).expect(200);
    let before = resident_bytes(server.daemon_pid()).expect("it runs");
    let mut highest = before;
    let mut look = || {
        highest = highest.max(resident_bytes(server.daemon_pid()).expect("it runs"));
    };
    let mut stream = client.raw();
    let request = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        content("/var/tmp/large", "")
    );
    stream.write_all(request.as_bytes()).expect("taken");
    for number in 0..BLOCKS {
        stream.write_all(format!("{BLOCK:x}\r\n").as_bytes()).expect("taken");
        stream.write_all(&block(number, BLOCK)).expect("taken");
        stream.write_all(b"\r\n").expect("taken");
        look();
    }
    stream.write_all(b"0\r\n\r\n").expect("taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with(&format!("{{\"bytes\":{}}}", BLOCKS * MIB)), "{answer}");
    // One that is asked for and not read, beside the one that is.
    let slow = client.open("GET", &content("/var/tmp/large", ""), &[], &[]);
    let mut whole = client.open("GET", &content("/var/tmp/large", ""), &[], &[]);
    let mut got = vec![0; BLOCK];
    for number in 0..BLOCKS {
        whole.read_exact(&mut got).expect("more of it");
        assert!(got == block(number, BLOCK), "block {number} differs");
        look();
    }
    assert_eq!(whole.read(&mut got).expect("its end"), 0);
    let growth = highest - before;
    assert!(growth <= 16 * MIB, "the bridge has grown by {growth} bytes");
    drop(slow);
}

#[test]
fn a_file_that_gets_shorter_is_not_passed_off_as_whole() {
    let (server, client) = open();
    put(&client, "/tmp/shrinks", "", &block(9, 32 * MIB as usize)).expect(200);
    let mut reading = client.open("GET", &content("/tmp/shrinks", ""), &[], &[]);
    assert_eq!(reading.headers.get("content-length"), Some("33554432"));
    server.ok(&["exec", "box", "--", "truncate", "-s", "1000", "/tmp/shrinks"]);
    let mut got = Vec::new();
    reading.read_to_end(&mut got).expect_err("the connection is cut");
    assert!(got.len() < 32 * MIB as usize);
}

#[test]
fn a_download_ends_with_its_deadline() {
    let (_server, client) = open_with(&json!({ "idle_ttl_ms": 600_000 }));
    put(&client, "/tmp/large", "", &block(10, 32 * MIB as usize)).expect(200);
    let headers = [("burrow-deadline-ms", "300")];
    let mut reading = client.open("GET", &content("/tmp/large", ""), &headers, &[]);
    assert_eq!(reading.status, 200);
    eventually("it is given up", || client.get(BOX).json()["idle_since_ms"].is_number());
    reading.read_to_end(&mut Vec::new()).expect_err("the connection is cut");
}
