//! Links to ports.

use std::fs;
use std::path::Path;

use serde_json::json;
use tests::eventually;
use tests::http::Client;
use tests::listening::{Listening, listen_in};
use tests::server::Server;

use super::APP;
use super::access::keygen;

const PAGE: (&str, &str) = ("accept", "text/html");

struct Linked {
    server: Server,
    client: Client,
    id: String,
    app: Listening,
}

fn linked() -> Linked {
    let server = Server::with_keys();
    let (key, id) = keygen(&server, &["--namespace", "default"]);
    let client = Client::new(server.url()).key(&key);
    for name in ["box", "other"] {
        client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
    }
    let app = listen_in(&server, "box", APP);
    Linked { server, client, id, app }
}

impl Linked {
    /// A browser at a port, without a key.
    fn browser(&self, port: u16, name: &str) -> Client {
        Client::new(self.server.url()).host(&format!("{port}-{name}.localhost"))
    }

    fn make(&self, more: &serde_json::Value) -> serde_json::Value {
        let mut body = more.clone();
        body["port"] = json!(self.app.port);
        self.client.post("/v1/sandboxes/default/box/previews", &body).expect(201).json()
    }
}

fn token(link: &serde_json::Value) -> String {
    let url = link["url"].as_str().unwrap();
    url.split_once("burrow_link=").unwrap().1.to_owned()
}

#[test]
fn a_link_opens_one_port_in_a_browser_and_leaves_its_address() {
    let linked = linked();
    let link = linked.make(&json!({}));
    let token = token(&link);
    let browser = linked.browser(linked.app.port, "box");
    assert_eq!(browser.get("/").status, 401);
    let page = browser.send("GET", "/", &[PAGE], &[]).expect(401);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let entered =
        browser.send("GET", &format!("/a?b=c&burrow_link={token}"), &[PAGE], &[]).expect(303);
    assert_eq!(entered.header("location"), Some("/a?b=c"));
    assert_eq!(entered.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(entered.header("cache-control"), Some("no-store"));
    let cookie = entered.header("set-cookie").unwrap();
    let (pair, rules) = cookie.split_once("; ").unwrap();
    assert_eq!(pair, format!("burrow-link={token}"));
    assert!(rules.starts_with("Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"), "{rules}");
    assert!(!rules.contains("Domain"), "{rules}");
    let said =
        browser.send("GET", "/a?b=c", &[("cookie", &format!("x=1; {pair}"))], &[]).expect(200);
    assert_eq!(super::got(&said.json(), "cookie"), ["x=1"]);
    // A program sends it as it is, and its token goes no further either.
    let said = browser.get(&format!("/hook?burrow_link={token}&x=1")).expect(200).json();
    assert_eq!(said["target"], "/hook?x=1");
    let by_path = format!("/p/default/box/{}/hook?burrow_link={token}", linked.app.port);
    let said = Client::new(linked.server.url()).get(&by_path).expect(200).json();
    assert_eq!(said["target"], "/hook");
    // A path that would be another host stays here.
    let entered =
        browser.send("GET", &format!("//evil.example/?burrow_link={token}"), &[PAGE], &[]);
    assert_eq!(entered.expect(303).header("location"), Some("/"));
    // It opens nothing else.
    let cookie = [("cookie", pair)];
    assert_eq!(linked.browser(1, "box").send("GET", "/", &cookie, &[]).status, 401);
    assert_eq!(linked.browser(linked.app.port, "other").send("GET", "/", &cookie, &[]).status, 401);
    let server = Client::new(linked.server.url());
    assert_eq!(server.send("GET", "/v1/sandboxes", &cookie, &[]).status, 401);
    assert_eq!(server.get(&format!("/v1/sandboxes?burrow_link={token}")).status, 401);
    let bearer = [("authorization", &format!("Bearer {token}")[..])];
    assert_eq!(server.send("GET", "/v1/sandboxes", &bearer, &[]).status, 401);
}

#[test]
fn a_link_ends_with_its_time_its_removal_its_key_and_its_sandbox() {
    let linked = linked();
    let browser = linked.browser(linked.app.port, "box");
    let status =
        |link: &serde_json::Value| browser.get(&format!("/?burrow_link={}", token(link))).status;
    let short = linked.make(&json!({ "ttl_ms": 1000 }));
    assert_eq!(status(&short), 200);
    eventually("it expires", || status(&short) == 401);
    let (first, second) = (linked.make(&json!({})), linked.make(&json!({ "ttl_ms": 60_000 })));
    let list = linked.client.get("/v1/sandboxes/default/box/previews").expect(200).json();
    assert_eq!(list["previews"].as_array().unwrap().len(), 2, "{list}");
    assert!(!list.to_string().contains("bpl_"), "{list}");
    assert_eq!(list["previews"][0]["key"], linked.id);
    let one = |id: &serde_json::Value| {
        format!("/v1/sandboxes/default/box/previews/{}", id.as_str().unwrap())
    };
    linked.client.delete(&one(&first["id"])).expect(204);
    assert_eq!(linked.client.delete(&one(&first["id"])).expect(404).code(), "not_found");
    assert_eq!((status(&first), status(&second)), (401, 200));
    linked.server.ok(&["keys", "revoke", &linked.id]);
    eventually("the revocation acts", || status(&second) == 401);
}

#[test]
fn a_link_of_the_command_line_is_the_operators_and_outlives_the_bridge() {
    let mut linked = linked();
    let port = linked.app.port.to_string();
    let url = linked.server.ok(&["preview", "box", &port, "--for", "10m"]);
    let token = url.trim().split_once("burrow_link=").unwrap().1.to_owned();
    linked.server.ok(&["keys", "rotate", "--drop-old"]);
    linked.server.kill_and_serve_again();
    let status = |linked: &Linked| {
        linked.browser(linked.app.port, "box").get(&format!("/?burrow_link={token}")).status
    };
    eventually("the sandbox is taken up", || status(&linked) == 200);
    let listed = linked.server.ok(&["preview", "ls", "box", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["port"], &listed[0]["key"]), (&json!(linked.app.port), &json!(null)));
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(linked.server.ok(&["preview", "rm", "box", id]).trim(), id);
    assert_eq!(status(&linked), 401);
    let missing = linked.server.run(&["preview", "rm", "box", id]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("preview ls box"), "{missing:?}");
}

#[test]
fn no_token_of_a_link_is_in_the_journal_the_audit_log_or_on_disk() {
    let linked = linked();
    let token = token(&linked.make(&json!({})));
    let browser = linked.browser(linked.app.port, "box");
    browser.send("GET", &format!("/?burrow_link={token}"), &[PAGE], &[]).expect(303);
    browser.get(&format!("/?burrow_link={token}")).expect(200);
    browser.send("POST", &format!("/?burrow_link={token}"), &[], b"x").expect(200);
    browser.send("GET", "/", &[("cookie", &format!("burrow-link={token}"))], &[]).expect(200);
    browser.get(&format!("/?burrow_link={token}x")).expect(401);
    // Records are written some milliseconds behind the answers.
    let audit = || linked.server.ok(&["audit", "--json"]);
    eventually("the last call is in the audit log", || audit().contains("\"status\":401"));
    let audit = audit();
    assert!(audit.contains("create_preview") && !audit.contains(&token), "{audit}");
    let secret = &token[4..];
    let mut searched = 0;
    for root in [linked.server.log(), linked.server.state(), linked.server.runtime()] {
        search(&root, &mut |path, bytes| {
            searched += 1;
            let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!is_there, "{}", path.display());
        });
    }
    assert!(searched > 5, "only {searched} files were looked at");
}

fn search(path: &Path, look: &mut impl FnMut(&Path, &[u8])) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap().flatten() {
            search(&entry.path(), look);
        }
    } else if path.is_file()
        && let Ok(bytes) = tests::written(path)
    {
        look(path, &bytes);
    }
}

#[test]
fn a_link_that_cannot_be_is_refused_in_words() {
    let linked = linked();
    let path = "/v1/sandboxes/default/box/previews";
    for body in [
        json!({}),
        json!({ "port": 0 }),
        json!({ "port": 65536 }),
        json!({ "port": 80, "ttl_ms": 0 }),
        json!({ "port": 80, "ttl_ms": 31_u64 * 86_400_000 }),
        json!({ "port": 80, "more": 1 }),
    ] {
        assert_eq!(linked.client.post(path, &body).expect(400).code(), "invalid", "{body}");
    }
    let missing = linked.client.post("/v1/sandboxes/default/none/previews", &json!({ "port": 80 }));
    assert_eq!(missing.expect(404).code(), "not_found");
    let (other, _) = keygen(&linked.server, &["--namespace", "other"]);
    let other = Client::new(linked.server.url()).key(&other);
    assert_eq!(other.post(path, &json!({ "port": 80 })).expect(403).code(), "forbidden");
    for _ in 0..256 {
        linked.client.post(path, &json!({ "port": 80 })).expect(201);
    }
    assert_eq!(
        linked.client.post(path, &json!({ "port": 80 })).expect(429).code(),
        "limit_reached"
    );
}
