//! What a program in the sandbox may ask for, it may ask for without end; what it gets is bounded, and
//! whatever was too much leaves the rest as it was.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;
use tests::{eventually, resident_bytes};

use super::Scene;

/// The descriptors that the bridge has open.
fn descriptors(scene: &Scene) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", scene.server.daemon_pid())).unwrap().count()
}

#[test]
fn a_flood_of_names_is_bounded_and_over_when_it_is_over() {
    let Some(scene) = Scene::or_skip(&["*.example.org"]) else { return };
    let before = descriptors(&scene);
    let code = r#"
import socket, threading, time
def address(name):
    try: return socket.gethostbyname(name)
    except OSError: missed.append(name)
def ask(numbers):
    for number in numbers:
        for _ in range(4): address(f"n{number}.example.net")
        # One that is refused for the flood's sake is not refused for good.
        while not (one := address(f"n{number}.example.org")): time.sleep(0.05)
        found.append(one)
found, missed = [], []
askers = [threading.Thread(target=ask, args=(range(first, 300, 20),)) for first in range(20)]
for asker in askers: asker.start()
for asker in askers: asker.join()
# No address is given twice, though there are more names than can be listened for.
assert len(found) == len(set(found)) == 300, (len(found), len(set(found)))
assert len(missed) >= 1200, len(missed)
print("fine")"#;
    assert_eq!(scene.python(code).ok(), "fine\n");
    let later = "for n in $(seq 100); do curl -sS -m 20 http://later.example.org/hello && exit; sleep 0.1; done";
    assert_eq!(scene.run(later).ok(), "hello from later.example.org\n");
    eventually("the bridge frees what it used for that", || descriptors(&scene) <= before + 4);
    scene.is_audited("how many events were not told", |record| record["facts"]["untold"].is_u64());
    // A flood hides nothing: connections and their ends are reported.
    scene.is_audited("the connection", |record| {
        record["operation"] == "egress.ended" && record["facts"]["host"] == "later.example.org"
    });
}

#[test]
fn connections_at_once_and_in_a_time_are_bounded() {
    let options =
        ["--set", "egress.connections_max=8", "--set", "egress.connections_per_second=1000"];
    let Some(scene) = Scene::with(&["db.example.com:5432", "example.org"], &options) else {
        return;
    };
    let code = r#"
import socket
address = socket.gethostbyname("db.example.com")
def open():
    peer = socket.socket(); peer.settimeout(20)
    try:
        peer.connect((address, 5432))
        return peer if peer.recv(100) else None
    except ConnectionResetError: return None
first = [open() for _ in range(8)]
assert all(first)
assert not any(open() for _ in range(200))
# Those who had a place still have it.
for peer in first:
    peer.sendall(b"x"); assert peer.recv(100) == b"you are x"
    peer.close()
print("fine")"#;
    assert_eq!(scene.python(code).ok(), "fine\n");
    eventually("places are free again", || {
        scene.run("curl -sS -m 20 http://example.org/hello").code == Some(0)
    });
    scene.is_audited("too many at once", |record| {
        record["facts"]["why"] == "too many connections at once"
    });
    let slow = ["--set", "egress.connections_per_second=1"];
    let scene = Scene { server: scene.internet.bridge(&slow), internet: scene.internet };
    scene.create("a", &["example.org"]);
    let code = r#"
import socket
address = socket.gethostbyname("example.org")
def is_taken():
    peer = socket.socket(); peer.settimeout(20)
    try:
        peer.connect((address, 80))
        peer.sendall(b"GET /hello HTTP/1.1\r\nHost: example.org\r\n\r\n")
        return bool(peer.recv(100))
    except ConnectionError: return False
taken = [is_taken() for _ in range(100)]
assert taken[:4] == [True] * 4 and taken.count(False) > 40, taken
print("fine")"#;
    assert_eq!(scene.python(code).ok(), "fine\n");
    // Their target is known before they are reported.
    scene.is_refused("example.org", "too many new connections in a short time");
}

#[test]
fn bytes_are_bounded_and_a_silent_connection_is_ended() {
    let options = ["--set", "egress.bytes_max=4MiB", "--set", "egress.idle=1s"];
    let Some(scene) = Scene::with(&["db.example.com:5432", "example.org"], &options) else {
        return;
    };
    let code = r#"
import socket
peer = socket.create_connection(("db.example.com", 5432), 20)
peer.recv(100)
try: print("ended", peer.recv(100))
except ConnectionResetError: print("reset")"#;
    assert_eq!(scene.python(code).ok(), "reset\n");
    scene.is_audited("why it ended", |record| record["facts"]["why"] == "no data for 1 s");
    let carried = scene.run("curl -sS -m 20 'http://example.org/bytes?n=8000000' | wc -c").ok();
    let carried: u64 = carried.trim().parse().unwrap();
    assert!(carried < 4 << 20, "{carried}");
    let is_spent = |record: &Value| {
        record["facts"]["why"].as_str().is_some_and(|why| why.contains("used its limit of"))
    };
    scene.is_audited("that it is spent", is_spent);
    for record in scene.audited() {
        let is_cut = is_spent(&record) || record["facts"]["why"] == "no data for 1 s";
        if is_cut && record["operation"] == "egress.ended" {
            assert_eq!(record["outcome"], "failed", "{record}");
        }
    }
    // Further ones are refused before any host outside sees them, with a reason if possible.
    let reached = scene.internet.requests().len();
    let output = scene.run("curl -sS -m 20 -w '%{http_code}' http://example.org/hello").ok();
    assert!(output.contains("has used its limit") && output.ends_with("403"), "{output}");
    let proxied =
        "curl -sS -m 20 -w '%{http_code}' -x http://198.18.0.1:3128 http://example.org/hello";
    let output = scene.run(proxied).ok();
    assert!(output.contains("has used its limit") && output.ends_with("403"), "{output}");
    scene.run("curl -sS -m 20 https://example.org/hello").fails();
    scene.is_refused("example.org", "used its limit of");
    assert_eq!(scene.internet.requests().len(), reached);
    eventually("each of the three that came too late is refused in the record", || {
        let connections = scene.audited().into_iter().filter(|record| {
            record["operation"] == "egress.connection" && record["outcome"] == "refused"
        });
        connections.filter(is_spent).count() == 3
    });
    assert!(scene.audited().iter().all(|record| record["id"].is_string()), "whose it was");
}

#[test]
fn nothing_is_left_of_connections_that_are_over() {
    const CONNECTIONS: usize = 2000;
    let options = ["--set", "egress.connections_per_second=100000"];
    let Some(scene) = Scene::with(&["example.org"], &options) else { return };
    scene.run("curl -sS -m 20 http://example.org/hello").ok();
    let before = descriptors(&scene);
    // A good request, one that goes nowhere, one that is cut, and one that is never read.
    let code = format!(
        r#"
import socket, struct, threading
address = socket.gethostbyname("example.org")
def begin(numbers):
    for number in numbers:
        peer = socket.socket(); peer.settimeout(20)
        kind = number % 4
        try:
            peer.connect((address, [80, 443][number // 4 % 2]))
            if kind == 0:
                peer.sendall(b"GET /hello HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
                while peer.recv(1000): pass
            elif kind == 1:
                peer.sendall(b"GET /hello HTTP/1.1\r\nHost: example.net\r\n\r\n")
                while peer.recv(1000): pass
            elif kind == 2:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.sendall(b"GET /bytes?n=100000 HTTP/1.1\r\nHost: example.org\r\n\r\n")
                peer.recv(10)
        except OSError: pass
        peer.close()
threads = [threading.Thread(target=begin, args=(range(first, {CONNECTIONS}, 16),)) for first in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("fine")"#
    );
    assert_eq!(scene.python(&code).ok(), "fine\n");
    // One more is the writable layer that is ready for the next start.
    eventually("all of them are closed", || descriptors(&scene) <= before + 3);
    assert_eq!(
        scene.run("curl -sS -m 20 https://example.org/hello").ok(),
        "hello from example.org\n"
    );
}

/// Makes so many connections from the sandbox, some at once: requests and tunnels through the proxy, one
/// that it refuses, and one without it that is cut while the answer comes.
fn connect_often(scene: &Scene, connections: usize) {
    let code = format!(
        r#"
import socket, struct, threading
address = socket.gethostbyname("example.org")
PROXY, GET = ("198.18.0.1", 3128), b"GET /hello HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n"
def all_of(peer):
    received = b""
    while more := peer.recv(65536): received += more
    return received
def connect(number):
    kind = number % 4
    peer = socket.create_connection((address, 80) if kind == 3 else PROXY, 60)
    try:
        if kind == 0:
            peer.sendall(GET.replace(b"/hello", b"http://example.org/hello"))
            return all_of(peer).endswith(b"hello from example.org\n")
        if kind == 1:
            peer.sendall(b"CONNECT example.org:80 HTTP/1.1\r\nHost: example.org:80\r\n\r\n")
            assert peer.recv(12) == b"HTTP/1.1 200"
            peer.sendall(GET)
            return all_of(peer).endswith(b"hello from example.org\n")
        if kind == 2:
            peer.sendall(b"CONNECT example.net:443 HTTP/1.1\r\nHost: example.net:443\r\n\r\n")
            return all_of(peer).startswith(b"HTTP/1.1 403")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sendall(GET.replace(b"/hello", b"/bytes?n=1000000"))
        return bool(peer.recv(10))
    finally: peer.close()
wrong = []
def begin(numbers):
    for number in numbers:
        try: fine = connect(number)
        except OSError as error: fine = error
        if fine is not True: wrong.append((number, fine))
threads = [threading.Thread(target=begin, args=(range(first, {connections}, {AT_ONCE}),)) for first in range({AT_ONCE})]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong[:10] or "fine")"#
    );
    assert_eq!(scene.python(&code).ok(), "fine\n");
}

/// How many connections a sandbox has at once.
const AT_ONCE: usize = 16;

#[test]
fn ten_thousand_connections_leave_neither_descriptors_nor_memory_behind() {
    /// What an allocator may keep back for itself. A kilobyte of each connection would be more.
    const GROWTH_BYTES_MAX: u64 = 8 << 20;
    /// A guest's connection does not count as the bridge's; that to the host behind it does, and a lookup
    /// may be under way for each.
    const EACH_AT_ONCE: usize = 3;
    /// Between two looks at what the bridge has open.
    const LOOK_PAUSE: Duration = Duration::from_millis(20);
    let options = ["--set", "egress.connections_per_second=100000"];
    let Some(scene) = Scene::with(&["example.org"], &options) else { return };
    // What is made once for all: threads, caches, buffers that have grown to what they will be.
    connect_often(&scene, 2000);
    let settled = descriptors(&scene);
    let before = resident_bytes(scene.server.daemon_pid()).unwrap();
    let mut most = 0;
    std::thread::scope(|threads| {
        let (over, waiting) = channel::<()>();
        threads.spawn(|| {
            let _over = over;
            connect_often(&scene, 10_000);
        });
        while waiting.recv_timeout(LOOK_PAUSE) == Err(RecvTimeoutError::Timeout) {
            most = most.max(descriptors(&scene));
        }
    });
    assert!(most <= settled + AT_ONCE * EACH_AT_ONCE + 8, "{most} at once, {settled} before");
    eventually("all of them are closed", || descriptors(&scene) <= settled + 2);
    let after = resident_bytes(scene.server.daemon_pid()).unwrap();
    let growth = after.saturating_sub(before);
    assert!(growth <= GROWTH_BYTES_MAX, "{before} bytes before, {after} behind it");
}
