//! The bytes of a connection must name the host that its address stands for: in the greeting of TLS,
//! in each request of HTTP, and in whatever way it is written.

use super::Scene;

/// Says bytes to a host, and prints what comes back: `say(host, port, bytes)`.
const SAY: &str = r#"
import socket, ssl, sys
def say(host, port, *pieces):
    peer = socket.create_connection((host, port), 20)
    try:
        for piece in pieces: peer.sendall(piece)
        received = b""
        while more := peer.recv(65536):
            received += more
            if b"hello from" in received and received.endswith(b"\n") or b" 403 " in received and received.endswith(b".\n"): break
        return received
    except ConnectionError: return received or b"reset"
    finally: peer.close()
"#;

fn say(scene: &Scene, code: &str) -> String {
    scene.python(&format!("{SAY}{code}\n")).ok()
}

#[test]
fn a_greeting_for_another_host_is_refused() {
    let Some(scene) = Scene::or_skip(&["*.example.com", "example.net"]) else { return };
    let fronted = scene.run(
        "curl -sS -m 20 --connect-to example.net:443:www.example.com:443 https://example.net/hello",
    );
    fronted.fails();
    scene.is_refused("www.example.com", "it asks for example.net");
    // A greeting without a name, or in pieces.
    let code = r#"
context = ssl.create_default_context()
context.check_hostname = False
def greeting(name):
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    try: context.wrap_bio(theirs, ours, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError: pass
    return ours.read()
NO_SUCH_NAME = bytes([21, 3, 3, 0, 2, 2, 112])
assert say("www.example.com", 443, greeting(None)) == NO_SUCH_NAME
def cut(whole, size):
    body, records = whole[5:], b""
    for at in range(0, len(body), size):
        piece = body[at:at + size]
        records += whole[:3] + len(piece).to_bytes(2, "big") + piece
    return records
for size in [1, 7, 100]:
    assert say("www.example.com", 443, cut(greeting("example.net"), size)) == NO_SUCH_NAME, size
# The same records in as many packets, and a good greeting behind a wrong one.
hidden = cut(greeting("example.net"), 50)
assert say("www.example.com", 443, *[hidden[at:at + 1] for at in range(len(hidden))]) == NO_SUCH_NAME
assert say("www.example.com", 443, greeting("example.net") + greeting("www.example.com")) == NO_SUCH_NAME
for name in ["93.184.216.34", "www.example.com:443", "www.example.com/", "127.0.0.1"]:
    try: received = say("www.example.com", 443, greeting(name))
    except ValueError: continue
    assert b"hello" not in received
for nonsense in [b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\xff\xff" + bytes(70000), b"\x80\x2e\x01\x03\x01",
                 b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", b"SSH-2.0-x\r\n", b"\0" * 100]:
    assert say("www.example.com", 443, nonsense) == b"reset", nonsense[:9]
# What is cut into records is TLS all the same.
name = "www.example.com"
peer = socket.create_connection((name, 443), 20)
peer.sendall(cut(greeting(name), 20))
assert peer.recv(1) == b"\x16"
print("fine")"#;
    assert_eq!(say(&scene, code), "fine\n");
    assert_eq!(scene.internet.requests(), [0; 0]);
}

#[test]
fn each_request_of_a_connection_must_be_for_its_host() {
    let Some(scene) = Scene::or_skip(&["www.example.com", "example.net"]) else { return };
    let code = r#"
name = "www.example.com"
def get(host, target="/hello", more=""):
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()
assert b"hello from www.example.com" in say(name, 80, get(name))
for fine in ["WWW.Example.COM", name + ".", name + ":80", name + ":"]:
    assert b"hello from" in say(name, 80, get(fine)), fine
assert b" 404 " in say(name, 80, get(name, f"http://{name}/other", "Connection: close\r\n"))
for wrong in ["example.net", "example.net:80", "127.0.0.1", "", name + ":81", name + "@example.net",
              name + ", example.net", "x." + name, name + "\texample.net", name + ":80:80", "[::1]"]:
    received = say(name, 80, get(wrong))
    assert b" 403 " in received, (wrong, received)
for request in [
    get(name, more="Host: example.net\r\n"), get(name, more="hOsT: www.example.com\r\n"),
    get(name, f"http://{name}?@example.net/"), get(name, f"http://{name}#@example.net/"),
    get(name, "http://example.net/hello"), get(name, "http://www.example.com@example.net/hello"),
    get(name, "HTTP://example.net/hello"), get(name, "https://example.net/hello"), get(name, "example.net:80"),
    b"GET /hello HTTP/1.1\r\n\r\n", b"GET /hello HTTP/1.0\r\n\r\n", b"GET /hello\r\n\r\n",
    b"GET /hello HTTP/1.1\nHost: www.example.com\n\n" + b"\r\n\r\n",
    b"GET /hello HTTP/1.1\r\nX: y\r\n Host: www.example.com\r\n\r\n",
    b"GET /hello HTTP/1.1\r\nHost : www.example.com\r\n\r\n",
    b"GET /hello HTTP/1.1\r\n\x0bHost: www.example.com\r\n\r\n",
    b"GET /hello HTTP/1.1\r\nHost: www.example.com\r\nX: a\rHost: example.net\r\n\r\n",
    b"GET /hello HTTP/1.1\r\nHost: www.example.com\r\nX: a\nHost: example.net\r\n\r\n",
    b"GET  /hello HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    b"CONNECT example.net:80 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    b"CONNECT www.example.com:80 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    get(name, more="Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n"),
    get(name, more="Upgrade: tls/1.0\r\nConnection: upgrade\r\n"),
    get(name, more="Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
    get(name, more="Content-Length: 5\r\nContent-Length: 5\r\n") + b"12345",
    get(name, more="Content-Length: +5\r\n") + b"12345", get(name, more="Content-Length: 0x5\r\n") + b"12345",
    get(name, more="Transfer-Encoding: chunked, identity\r\n") + b"0\r\n\r\n",
    get(name, more="Transfer-Encoding: xchunked\r\n") + b"0\r\n\r\n",
    get(name, more="Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
]:
    received = say(name, 80, request)
    assert b" 403 " in received, (request, received)
for nothing in [b"PRI * HTTP/1.1\r\n\r\n", b"\r\n" + get(name), b"get /hello HTTP/1.1\r\n\r\n",
                b"GET\t/hello\tHTTP/1.1\r\nHost: www.example.com\r\n\r\n"]:
    received = say(name, 80, nothing)
    assert b"hello" not in received, (nothing, received)
print("fine")"#;
    assert_eq!(say(&scene, code), "fine\n");
    // What was refused has gone nowhere.
    let hosts: Vec<_> =
        scene.internet.requests().iter().map(|one| one["host"].to_string()).collect();
    assert!(
        hosts.iter().all(|host| host.to_ascii_lowercase().contains("www.example.com")),
        "{hosts:?}"
    );
    assert!(hosts.len() < 9, "{hosts:?}");
    scene.is_refused("www.example.com", "it is for the host \"example.net\"");
}

#[test]
fn an_offer_of_the_second_version_goes_no_further_and_its_request_does() {
    let Some(scene) = Scene::or_skip(&["www.example.com"]) else { return };
    let code = r#"
name = "www.example.com"
OFFER = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
def ask(peer, method="GET", target="/hello", more="", body=b""):
    peer.sendall(f"{method} {target} HTTP/1.1\r\nHost: {name}\r\n{OFFER}{more}\r\n".encode() + body)
    received = b""
    # The head may come alone.
    while not received.partition(b"\r\n\r\n")[2].endswith(b"\n"): received += peer.recv(1000) or sys.exit(f"ended: {received}")
    return received
def is_fine(received): return received.startswith(b"HTTP/1.1 200 ") and received.endswith(b"hello from www.example.com\n")
peer = socket.create_connection((name, 80), 20)
# The first of a connection, and the later ones; with a body as well.
for _ in range(3): assert is_fine(ask(peer))
assert ask(peer, "POST", more="Content-Length: 5\r\n", body=b"12345").startswith(b"HTTP/1.1 200 ")
assert is_fine(ask(peer))
proxied = socket.create_connection(("198.18.0.1", 3128), 20)
received = ask(proxied, target=f"http://{name}/hello")
# There is no second one, and the client must not think so.
assert is_fine(received) and b"\r\nconnection: close\r\n" in received.lower(), received
# A client that begins with it gets the refusal in HTTP/2: settings, and that the first version is required.
peer = socket.create_connection((name, 80), 20)
peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
received = b""
while more := peer.recv(1000): received += more
assert received[:9] == bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) and received[12] == 7 and received[22:26] == bytes([0, 0, 0, 13]), received
assert b"only HTTP/1 is carried" in received, received
print("fine")"#;
    assert_eq!(say(&scene, code), "fine\n");
    let requests = scene.internet.requests();
    assert_eq!(requests.len(), 6, "{requests:?}");
    assert!(requests.iter().all(|one| one["upgrade"].is_null() && one["http2-settings"].is_null()));
    scene.is_refused("www.example.com", "it speaks HTTP/2 without TLS");
}

#[test]
fn a_second_request_cannot_hide_behind_the_first() {
    let Some(scene) = Scene::or_skip(&["www.example.com"]) else { return };
    let code = r#"
name = "www.example.com"
first = f"GET /hello HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()
post = lambda more: f"POST /first HTTP/1.1\r\nHost: {name}\r\n{more}\r\n".encode()
other = b"GET /hidden HTTP/1.1\r\nHost: example.net\r\n\r\n"
def needless(method, more=""):
    return f"{method} /hello HTTP/1.1\r\nHost: {name}\r\n{more}Content-Length: {len(other)}\r\n\r\n".encode()
def all_of(*pieces):
    peer = socket.create_connection((name, 80), 20)
    received = b""
    try:
        for piece in pieces: peer.sendall(piece)
        while more := peer.recv(65536): received += more
    except ConnectionError: pass
    return received
for pieces in [
    [first + other], [first, other], [first * 20 + other],
    [post("Content-Length: 5\r\n") + b"12345" + other],
    [post("Content-Length: 5\r\n") + b"123", b"45" + other],
    [post("Transfer-Encoding: chunked\r\n") + b"5\r\n12345\r\n0\r\n\r\n" + other],
    [post("Transfer-Encoding: chunked\r\n") + b"0\r\nX: y\r\n\r\n" + other],
    [post("Transfer-Encoding: chunked\r\n") + b"5\r\n12345" + other],
    [post("Transfer-Encoding: chunked\r\n") + b"5;x=\"\n0\r\n\r\n" + other + b"\"\r\n12345\r\n0\r\n\r\n"],
    [post("Transfer-Encoding: chunked\r\n") + b"5\n12345\n0\n\n" + other],
    [post("Transfer-Encoding: chunked\r\n") + b"10000000000000005\r\n12345\r\n0\r\n\r\n" + other],
    [post("Transfer-Encoding: chunked\r\n") + b"-1\r\n\r\n0\r\n\r\n" + other],
    [first.replace(b"GET", b"HEAD") + other],
    # Servers that read no body of these find the next request in it.
    [needless("GET") + other], [needless("HEAD") + other], [needless("DELETE"), other],
    [first + needless("GET") + other], [needless("GET", "Connection: keep-alive\r\n") + other + first],
    [post("Upgrade: websocket\r\nConnection: Upgrade\r\n") + other],
    [post("Connection: keep-alive\r\nContent-Length: 0\r\n") + other],
    [post("Expect: 100-continue\r\nContent-Length: 5\r\n") + other],
]:
    all_of(*pieces)
# One that comes when the first is long answered.
peer = socket.create_connection((name, 80), 20)
peer.sendall(first); received = b""
while b"hello from" not in received: received += peer.recv(1000)
peer.sendall(other)
try:
    while peer.recv(1000): pass
    print("not reset")
except ConnectionResetError: print("fine")"#;
    // What has gone on is seen at the other end.
    assert_eq!(say(&scene, code), "fine\n");
    for one in scene.internet.requests() {
        assert!(one["host"] == "www.example.com" && one["path"] != "/hidden", "{one}");
    }
    scene.is_audited("a later request", |record| {
        record["operation"] == "egress.ended"
            && record["facts"]["why"].as_str().is_some_and(|why| why.contains("a later request"))
    });
}

#[test]
fn a_server_that_does_not_agree_to_a_websocket_is_asked_on() {
    let Some(scene) = Scene::or_skip(&["www.example.com"]) else { return };
    let code = r#"
name = "www.example.com"
peer = socket.create_connection((name, 80), 20)
def ask(host, more=""):
    peer.sendall(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()); received = b""
    while b"hello from" not in received: received += peer.recv(1000) or sys.exit("ended")
ask(name, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n")
ask(name)
ask(name)
try: ask("example.net")
except ConnectionResetError: print("fine")"#;
    assert_eq!(say(&scene, code), "fine\n");
    assert_eq!(scene.internet.requests().len(), 3);
}

#[test]
fn the_proxy_has_the_same_rules() {
    let Some(scene) = Scene::or_skip(&["www.example.com", "db.example.com:5432"]) else { return };
    let code = r#"
proxy = lambda *pieces: say("198.18.0.1", 3128, *pieces)
name = "www.example.com"
def get(target, more=f"Host: {name}\r\n"): return f"GET {target} HTTP/1.1\r\n{more}\r\n".encode()
assert b"hello from www.example.com" in proxy(get(f"http://{name}/hello"))
# The target says whom it is for, and the field beside it nothing.
assert b"hello from www.example.com" in proxy(get(f"http://{name}/hello", "Host: example.net\r\n"))
connect = lambda to: f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode()
received = proxy(connect(name + ":80") + f"GET /hello HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
assert b" 200 " in received and b"hello from" in received, received
for request in [
    get("http://example.net/hello"), get("http://127.0.0.1/hello"), get("http://[::1]/hello"),
    get("http://169.254.169.254/hello"), get("http://2130706433/hello"), get("http://0x7f.1/hello"),
    get(f"http://{name}@example.net/hello"), get(f"http://{name}:81/hello"), get(f"http://{name}:0/hello"),
    get(f"https://{name}/hello"), get("/hello"), get("http:///hello"), get(f"ftp://{name}/"),
    connect("example.net:443"), connect("127.0.0.1:80"), connect("[::1]:80"), connect(name), connect(name + ":0"),
    connect(name + ":22"), connect("169.254.169.254:80"), connect("198.18.0.1:3128"), connect("localhost:80"),
    connect("db.example.com:80"), connect(name + ":65616"),
]:
    received = proxy(request)
    assert b" 403 " in received, (request, received)
# Through a tunnel goes what would go without, and one request through no tunnel.
hidden = f"GET /hidden HTTP/1.1\r\nHost: example.net\r\n\r\n".encode()
received = proxy(connect(name + ":80") + hidden)
assert b" 403 " in received, received
for request in [get(f"http://{name}/hello"), get(f"http://{name}/hello", "Connection: keep-alive\r\n"),
                get(f"http://{name}/hello", f"Content-Length: {len(hidden)}\r\nConnection: Content-Length\r\n"),
                get(f"http://{name}/hello", "Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n")]:
    proxy(request + hidden)
def spoken(bytes):
    peer = socket.create_connection(("198.18.0.1", 3128), 20)
    peer.sendall(connect("db.example.com:5432")); received = b""
    while b"you?\n" not in received: received += peer.recv(100)
    peer.sendall(bytes)
    return peer.recv(100)
assert spoken(b"burrow") == b"you are burrow"
print("fine")"#;
    assert_eq!(say(&scene, code), "fine\n");
    for one in scene.internet.requests() {
        assert!(one["host"] == "www.example.com" && one["path"] == "/hello", "{one}");
    }
}

#[test]
fn what_egress_decides_is_in_the_timeline_of_its_sandbox() {
    let Some(scene) = Scene::or_skip(&["example.net"]) else { return };
    scene.run("curl -sS -m 20 http://example.net/hello").ok();
    scene.run("curl -sS -m 20 http://www.example.com/hello").fails();
    let path = "/v1/sandboxes/default/a/timeline?kind=egress";
    tests::eventually("both are there", || {
        let page = scene.client().get(path).expect(200).json();
        let entries = page["entries"].as_array().expect("a list");
        let has = |host: &str, failed: bool| {
            let is = |one: &&serde_json::Value| {
                one["facts"]["host"] == host && (one["failed"] == true) == failed
            };
            entries.iter().any(|one| is(&one))
        };
        has("example.net", false) && has("www.example.com", true) && !has("example.net", true)
    });
}
