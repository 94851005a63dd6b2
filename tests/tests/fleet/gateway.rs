//! Doors beside the native API at a node that does not have the sandbox: the same answers as at the one that has it.

use std::io::Read;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};
use tests::http::Client;
use tests::listening::{Listening, listen_in};

/// Echoes a WebSocket's first frames without knowing more of it, and says what it was asked for otherwise.
const PROGRAM: &str = r#"
import base64, hashlib, http.server, sys, threading
more = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("upgrade"):
            magic = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
            self.send_response(101)
            self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accept); self.end_headers()
            self.wfile.write(b"\x81\x07\"hello\""); self.wfile.flush()
            self.rfile.read(1)
            self.close_connection = True
            return
        if self.path == "/endless":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            self.wfile.write(b"5\r\nbegun\r\n"); self.wfile.flush()
            self.rfile.read(1)
            return
        if self.path == "/halves":
            self.send_response(200); self.send_header("Content-Length", "10"); self.end_headers()
            self.wfile.write(b"first"); self.wfile.flush()
            more.wait()
            self.wfile.write(b"other")
            return
        if self.path == "/more":
            more.set()
        body = ("%s %s %s" % (self.path, self.headers.get("authorization"), self.headers.get("cookie"))).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1]); sys.stdout.flush()
server.serve_forever()
"#;

/// Two nodes without keys, of which the second has `there`, and its id.
fn with_one_there(nats: &Nats) -> (Vec<Member>, String) {
    let members = open(nats, 2);
    members[1].start(&["--name", "there"]);
    let shown = members[1].client.get("/v1/sandboxes/default/there").expect(200).json();
    (members, shown["id"].as_str().expect("an id").to_owned())
}

/// Two nodes that ask for keys, of which the second has `team/there`.
fn with_keys(nats: &Nats) -> (Member, Member) {
    let (first, second) = (Member::join(nats, "n1", &[]), Member::join(nats, "n2", &[]));
    first.knows(2);
    second.knows(2);
    second.start(&["--name", "team/there"]);
    (first, second)
}

fn key_at(member: &Member, namespace: &str) -> Client {
    let key = member.server.ok(&["keygen", "--namespace", namespace, "--scope", "run"]);
    Client::new(member.server.url()).key(key.trim())
}

/// Gives one node the keys of another.
fn share_keys(from: &Member, to: &Member) {
    for name in ["secrets.json", "keys.json"] {
        let (from, to) = (from.server.state().join("keys"), to.server.state().join("keys"));
        std::fs::copy(from.join(name), to.join(name)).expect("a copy");
    }
}

fn serving(member: &Member, sandbox: &str) -> Listening {
    listen_in(&member.server, sandbox, PROGRAM)
}

#[test]
fn a_sandbox_is_reached_by_its_id_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let (members, id) = with_one_there(&nats);
    let by_id = format!("/v1/sandboxes/default/{id}");
    for member in &members {
        assert_eq!(member.client.get(&by_id).expect(200).json()["name"], "there");
        let run = json!({ "argv": ["echo", "hi"] });
        let ran = member.client.post(&format!("{by_id}/exec"), &run).expect(200).json();
        assert_eq!(ran["stdout"], "hi\n");
        // It is in that namespace, and in no other.
        let refused = member.client.get(&format!("/v1/sandboxes/other/{id}")).expect(404).json();
        assert_eq!(refused["code"], "not_found", "{refused}");
        let unknown = member.client.get("/v1/sandboxes/default/0123456789ab").expect(404).json();
        assert_eq!(unknown["code"], "not_found", "{unknown}");
    }
    members[0].client.delete(&format!("{by_id}?force=true")).expect(200);
    for member in &members {
        member.client.get(&by_id).expect(404);
    }
}

#[test]
fn an_id_whose_node_is_away_is_not_said_to_be_unknown() {
    let Some(nats) = Nats::start() else { return };
    let (members, id) = with_one_there(&nats);
    let by_id = format!("/v1/sandboxes/default/{id}");
    members[1].signal(Signal::SIGKILL);
    let away = members[0].client.get(&by_id).expect(503).json();
    assert!(away["message"].as_str().is_some_and(|why| why.contains("n2")), "{away}");
    // Once the node is buried, nobody has it.
    eventually("its node is gone", || members[0].client.get(&by_id).status == 404);
}

#[test]
fn e2b_of_any_node_reaches_a_sandbox_of_another() {
    let Some(nats) = Nats::start() else { return };
    let (members, id) = with_one_there(&nats);
    let one = format!("/sandboxes/{id}");
    let shown = |member: &Member| member.client.get(&one).expect(200).json();
    assert_eq!(shown(&members[0])["sandboxID"], shown(&members[1])["sandboxID"]);
    let port = |port: &'static str| [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", port)];
    let envd = |member: &Member, method: &str, path: &str, body: &[u8]| {
        let kind = [("content-type", "application/octet-stream")];
        member.client.send(method, path, &[&port("49983")[..], &kind].concat(), body)
    };
    assert_eq!(envd(&members[0], "GET", "/health", &[]).status, 204);
    envd(&members[0], "POST", "/files?path=/tmp/e2b.txt&username=root", b"over there").expect(200);
    let file = "/files?path=/tmp/e2b.txt&username=root";
    assert_eq!(envd(&members[0], "GET", file, &[]).expect(200).text(), "over there");
    let program = serving(&members[1], "there");
    let number = program.port.to_string();
    let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", number.as_str())];
    let answer = members[0].client.send("GET", "/page?x=1", &headers, &[]).expect(200);
    assert!(answer.text().starts_with("/page?x=1"), "{}", answer.text());
    let unknown = members[0].client.get("/sandboxes/0123456789ab").expect(404).json();
    assert_eq!(unknown["code"], 404, "{unknown}");
    members[0].client.delete(&one).expect(204);
    members[1].client.get("/v1/sandboxes/default/there").expect(404);
}

#[test]
fn daytonas_clients_of_any_node_reach_a_sandbox_of_another_by_its_id_and_by_its_name() {
    let Some(nats) = Nats::start() else { return };
    let (members, id) = with_one_there(&nats);
    for name in [id.as_str(), "there"] {
        let shown = members[0].client.get(&format!("/daytona/sandbox/{name}")).expect(200).json();
        assert_eq!(shown["id"], id.as_str(), "{shown}");
        // The client goes on with the node that it has called.
        let proxy = shown["toolboxProxyUrl"].as_str().expect("a URL");
        assert_eq!(proxy, format!("{}/daytona/toolbox", members[0].server.url()));
        let path = format!("/daytona/toolbox/{name}/process/execute");
        let ran = members[0].client.post(&path, &json!({ "command": "echo there; exit 3" }));
        let ran = ran.expect(200).json();
        assert_eq!((&ran["result"], &ran["exitCode"]), (&json!("there\n"), &json!(3)), "{ran}");
    }
    let unknown = members[0].client.get("/daytona/sandbox/nowhere").expect(404).json();
    assert_eq!(unknown["statusCode"], 404, "{unknown}");
    members[0].client.delete(&format!("/daytona/sandbox/{id}")).expect(200);
    members[1].client.get("/v1/sandboxes/default/there").expect(404);
}

#[test]
fn the_token_of_a_sandbox_is_judged_by_its_own_node() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = with_keys(&nats);
    let team = key_at(&second, "team");
    // The other one does not know the key.
    second.server.ok(&["node", "cordon", "n1"]);
    let made = team.post("/v2/sandboxes", &json!({ "templateID": "base" })).expect(201).json();
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    let (id, token) = (text("sandboxID"), text("envdAccessToken"));
    let list = |token: Option<&str>| {
        let mut headers = vec![("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "49983")];
        headers.extend(token.map(|token| ("x-access-token", token)));
        Client::new(first.server.url()).send("GET", "/files?path=/etc/passwd", &headers, &[]).status
    };
    assert_eq!(list(Some(&token)), 200);
    assert_eq!(list(Some("ea_000000000000000000000000000000000000000000000000")), 401);
    assert_eq!(list(None), 401);
    // The key is one of the second node, which the first does not know.
    let stranger = Client::new(first.server.url()).key(team.sent_key());
    stranger.get(&format!("/sandboxes/{id}")).expect(401);
    // A key of the first that does not reach the namespace learns of it what it would of none.
    let other = key_at(&first, "other").get(&format!("/sandboxes/{id}")).expect(404).text();
    let none = key_at(&first, "other").get("/sandboxes/0123456789ab").expect(404).text();
    assert_eq!(other.replace(&id, "ID"), none.replace("0123456789ab", "ID"));
}

#[test]
fn a_preview_of_any_node_shows_a_port_of_another() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = with_one_there(&nats);
    let program = serving(&members[1], "there");
    let prefix = format!("/p/default/there/{}", program.port);
    for member in &members {
        let answer = member.client.get(&format!("{prefix}/a?b=c")).expect(200);
        assert!(answer.text().starts_with("/a?b=c"), "{}", answer.text());
        let mut socket = member.client.websocket(&format!("{prefix}/socket"), &[]);
        let heard = format!("{:?}", socket.hear());
        assert!(heard.contains("hello"), "{heard}");
        // Whatever the program does, the server's own origin stays the server's.
        assert!(answer.header("content-security-policy").is_some());
    }
    let closed = members[0].client.get("/p/default/there/1/");
    assert_eq!(closed.status, members[1].client.get("/p/default/there/1/").status);
}

#[test]
fn a_stream_of_a_port_whose_node_dies_is_cut_off_and_not_ended() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = with_one_there(&nats);
    let program = serving(&members[1], "there");
    let clients = [(); 2].map(|()| Client::new(members[0].server.url()));
    let names = ["endless", "halves"];
    let answers = clients.iter().zip(names).map(|(client, name)| {
        let place = format!("/p/default/there/{}/{name}", program.port);
        let answer = client.open("GET", &place, &[], &[]);
        assert_eq!(answer.status, 200, "{name}");
        answer
    });
    let answers: Vec<_> = answers.collect();
    members[1].signal(Signal::SIGKILL);
    for answer in answers {
        let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| answer.whole()));
        assert!(cut.is_err(), "a part was taken for the whole");
    }
}

#[test]
fn a_short_answer_that_a_port_sends_in_halves_is_not_held_back() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = with_one_there(&nats);
    let program = serving(&members[1], "there");
    let place = |name: &str| format!("/p/default/there/{}/{name}", program.port);
    let mut answer = members[0].client.open("GET", &place("halves"), &[], &[]);
    let mut half = [0; 5];
    answer.read_exact(&mut half).expect("the first half");
    assert_eq!(&half, b"first");
    Client::new(members[0].server.url()).get(&place("more")).expect(200);
    answer.read_exact(&mut half).expect("the second half");
    assert_eq!(&half, b"other");
}

#[test]
fn a_mark_of_a_client_is_refused_at_every_door() {
    let Some(nats) = Nats::start() else { return };
    let (members, id) = with_one_there(&nats);
    let one = format!("/sandboxes/{id}");
    for path in [&one, "/p/default/there/80/", "/api/kernels/x", "/mcp", "/v1/artifacts/x"] {
        for member in &members {
            let refused = member.client.send("GET", path, &[("burrow-mark", "e30.e30")], &[]);
            assert_eq!(refused.status, 401, "{path}: {}", refused.text());
        }
    }
}

#[test]
fn a_link_to_a_port_opens_it_at_any_node_and_a_key_stays_at_the_gateway() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = with_keys(&nats);
    let program = serving(&second, "team/there");
    let place = format!("/p/team/there/{}/", program.port);
    let team = key_at(&first, "team");
    // A link is good while the node of its sandbox knows the key that made it.
    share_keys(&first, &second);
    let at_home = Client::new(second.server.url()).key(team.sent_key());
    eventually("the second knows it", || at_home.get(&place).status == 200);
    let said = team.get(&place).expect(200).text();
    assert!(!said.contains("msb_") && said.contains("None"), "a key got to the program: {said}");
    let asked = json!({ "port": program.port });
    let made = team.post("/v1/sandboxes/team/there/previews", &asked).expect(201).json();
    // `http://PORT-ID.localhost:…/?burrow_link=…`
    let url = made["url"].as_str().expect("a link");
    let (host, _) = url["http://".len()..].split_once(':').expect("a host name");
    let (_, link) = url.split_once('?').expect("a link");
    for member in [&first, &second] {
        let nobody = Client::new(member.server.url());
        nobody.get(&format!("{place}?{link}")).expect(200);
        nobody.get(&place).expect(401);
        // Under the port's own host name a browser gets the link as a cookie.
        let named = Client::new(member.server.url()).host(host);
        let accept = [("accept", "text/html")];
        let entered = named.send("GET", &format!("/a?{link}"), &accept, &[]).expect(303);
        let cookie = entered.header("set-cookie").expect("a cookie").split(';').next().unwrap();
        let said = named.send("GET", "/a", &[("cookie", cookie)], &[]).expect(200).text();
        assert!(said.starts_with("/a") && !said.contains("bpl_"), "{said}");
        named.get("/a").expect(401);
    }
    let other = key_at(&first, "other");
    let refused = other.get(&place).expect(404).json();
    let unknown = other.get(&place.replace("there", "none")).expect(404).json();
    assert_eq!(refused["message"], unknown["message"]);
}

#[test]
fn a_kernel_of_jupyter_is_reached_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = with_one_there(&nats);
    let asked = json!({ "name": "python3", "env": { "KERNEL_BURROW_SANDBOX": "there" } });
    let kernel = members[0].client.post("/api/kernels", &asked).expect(201).json();
    let one = format!("/api/kernels/{}", kernel["id"].as_str().expect("an id"));
    for member in &members {
        assert_eq!(member.client.get(&one).expect(200).json()["id"], kernel["id"]);
    }
    let mut socket = members[0].client.websocket(&format!("{one}/channels"), &[]);
    let header = json!({ "msg_id": "1", "msg_type": "execute_request", "username": "", "session": "s",
        "date": "2026-01-01T00:00:00Z", "version": "5.3" });
    let content = json!({ "code": "print(6 * 7)", "silent": false, "store_history": true,
        "user_expressions": {}, "allow_stdin": false, "stop_on_error": true });
    socket
        .tell(&json!({ "header": header, "parent_header": {}, "metadata": {}, "content": content,
        "channel": "shell", "buffers": [] }));
    let mut heard = Vec::new();
    eventually("the cell has run", || {
        heard.push(socket.hear_value());
        heard.last().is_some_and(|last| last["header"]["msg_type"] == "execute_reply")
    });
    assert!(heard.iter().any(|one| one["content"]["text"] == "42\n"), "{heard:?}");
    socket.close();
    members[0].client.delete(&one).expect(204);
    for member in &members {
        member.client.get(&one).expect(404);
    }
}

#[test]
fn a_notebook_is_one_in_the_whole_fleet() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = with_one_there(&nats);
    let asked = json!({ "name": "book", "sandbox": "there", "language": "python" });
    members[0].client.post("/v1/notebooks", &asked).expect(200);
    let run = |member: &Member, code: &str| {
        let run = json!({ "code": code });
        member.client.post("/v1/notebooks/default/book/run", &run).expect(200).json()
    };
    run(&members[0], "x = 20");
    run(&members[1], "x = x + 1");
    let ran = run(&members[0], "print(x * 2)");
    assert_eq!(ran["stdout"], "42\n", "{ran}");
    // One that nobody has is made at one node, whichever is asked first.
    for member in &members {
        member.client.post("/v1/notebooks/default/drawn/run", &json!({ "code": "1" })).expect(200);
    }
    let made = |member: &Member| {
        let listed = member.client.get("/v1/notebooks").expect(200).json();
        let named = |one: &&Value| one["name"] == "drawn";
        listed["notebooks"].as_array().expect("a list").iter().filter(named).count()
    };
    assert_eq!(members.iter().map(made).sum::<usize>(), 1);
    members[0].client.delete("/v1/notebooks/default/drawn").expect(204);
    members[1].client.get("/v1/notebooks/default/drawn").expect(404);
}

#[test]
fn an_artifact_is_read_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = with_one_there(&nats);
    let there = "/v1/sandboxes/default/there";
    let write = json!({ "argv": ["sh", "-c", "printf kept >/tmp/left.txt"] });
    members[0].client.post(&format!("{there}/exec"), &write).expect(200);
    let keep = json!({ "path": "/tmp/left.txt" });
    let kept = members[0].client.post(&format!("{there}/artifacts"), &keep).expect(201).json();
    let one = format!("/v1/artifacts/{}", kept["id"].as_str().expect("an id"));
    for member in &members {
        assert_eq!(member.client.get(&one).expect(200).json()["id"], kept["id"]);
        assert_eq!(member.client.get(&format!("{one}/content")).expect(200).text(), "kept");
        let of_sandbox = "/v1/artifacts?namespace=default&sandbox=there";
        let listed = member.client.get(of_sandbox).expect(200).json();
        assert_eq!(listed["artifacts"][0]["id"], kept["id"], "{listed}");
    }
    members[0].client.delete(&one).expect(200);
    members[1].client.get(&one).expect(404);
}

#[test]
fn doors_say_that_a_node_is_away_and_then_that_its_sandbox_is_lost() {
    let Some(nats) = Nats::start() else { return };
    let (members, id) = with_one_there(&nats);
    let one = format!("/sandboxes/{id}");
    members[0].client.get(&one).expect(200);
    members[1].signal(Signal::SIGKILL);
    assert_eq!(members[0].client.get(&one).status, 503);
    assert_eq!(members[0].client.get("/p/default/there/80/").status, 503);
    // The gateway has seen it there, so that it can say what became of it.
    eventually("it is lost", || members[0].client.get(&one).status == 410);
    eventually("its port is", || members[0].client.get("/p/default/there/80/").status == 502);
}
