//! The bytes of artifacts over HTTP.

use serde_json::json;

use super::scene::{by_name, captured, content, open};

#[test]
fn ranges_tags_and_heads_are_as_http_has_them() {
    let (_server, client) = open();
    let artifacts = captured(&client, "printf 0123456789 > ten.bin; : > none.txt");
    let ten = by_name(&artifacts)["ten.bin"].clone();
    let path = format!("/v1/artifacts/{}/content", ten["id"].as_str().unwrap());
    let get = |headers: &[(&str, &str)]| client.send("GET", &path, headers, &[]);

    let whole = get(&[]).expect(200);
    assert_eq!(whole.body, b"0123456789");
    let tag = whole.header("etag").unwrap().to_owned();
    let digest = ten["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert_eq!(tag, format!("\"{digest}\""));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));

    for (range, body, expected) in [
        ("bytes=0-3", &b"0123"[..], "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ] {
        let part = get(&[("range", range)]).expect(206);
        assert_eq!((&part.body[..], part.header("content-range")), (body, Some(expected)));
    }
    let outside = get(&[("range", "bytes=10-")]).expect(416);
    assert_eq!(outside.header("content-range"), Some("bytes */10"));
    assert_eq!(outside.code(), "range_not_satisfiable");
    assert_eq!(get(&[("range", "lines=1-2")]).expect(200).body.len(), 10);
    assert_eq!(get(&[("range", "bytes=0-3"), ("if-range", &tag)]).expect(206).body, b"0123");
    assert_eq!(get(&[("range", "bytes=0-3"), ("if-range", "\"x\"")]).expect(200).body.len(), 10);
    let same = get(&[("if-none-match", &tag)]).expect(304);
    assert!(same.body.is_empty() && same.header("etag") == Some(&tag));
    let _ = get(&[("if-none-match", "\"x\"")]).expect(200);

    let head = client.send("HEAD", &path, &[], &[]).expect(200);
    assert_eq!((head.body.len(), head.header("content-length")), (0, Some("10")));
    let none = by_name(&artifacts)["none.txt"].clone();
    assert!(content(&client, &none).is_empty());
    let empty = format!("/v1/artifacts/{}/content", none["id"].as_str().unwrap());
    let _ = client.send("GET", &empty, &[("range", "bytes=0-")], &[]).expect(416);
}

#[test]
fn active_content_does_not_run_in_a_browser() {
    let (_server, client) = open();
    let artifacts = captured(
        &client,
        "echo '<script>alert(1)</script>' > p.html; echo '<svg onload=\"x()\"/>' > d.svg
         printf '\\211PNG\\r\\n\\032\\n' > i.png",
    );
    for (name, kind, shown) in [
        ("p.html", "text/html; charset=utf-8", "attachment"),
        ("d.svg", "image/svg+xml", "attachment"),
        ("i.png", "image/png", "inline"),
    ] {
        let id = by_name(&artifacts)[name]["id"].as_str().unwrap().to_owned();
        let whole = client.get(&format!("/v1/artifacts/{id}/content")).expect(200);
        assert_eq!(whole.header("content-type"), Some(kind));
        assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
        assert!(whole.header("content-security-policy").unwrap().starts_with("sandbox"));
        assert!(whole.header("content-disposition").unwrap().starts_with(shown), "{name}");
    }
}

#[test]
fn a_large_artifact_comes_whole() {
    let (_server, client) = open();
    let stored =
        captured(&client, "head -c 20000000 /dev/urandom > large.bin; sha256sum large.bin > sum");
    let artifacts = by_name(&stored);
    let sum = String::from_utf8(content(&client, &artifacts["sum"])).unwrap();
    let digest =
        artifacts["large.bin"]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert!(sum.starts_with(digest), "{sum} {digest}");
    assert_eq!(content(&client, &artifacts["large.bin"]).len(), 20_000_000);
    assert_eq!(artifacts["large.bin"]["size"], json!(20_000_000));
}
