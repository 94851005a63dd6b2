//! What is carried: all of it, in order, both ways, and nobody in anybody's way.

use std::process::Command;
use std::time::{Duration, Instant};

use tests::internet::WEB;

use super::Scene;

const BYTES: u64 = 128 << 20;
/// What of a direct connection's rate the way through the bridge has at least, both measured in the same
/// run: far less than it has, and far more than it would have if it waited anywhere.
const RATE_MIN: f64 = 0.02;

#[test]
fn a_large_download_and_an_upload_arrive_whole() {
    let Some(scene) = Scene::or_skip(&["example.org"]) else { return };
    let from = |bytes: u64| format!("https://example.org/bytes?n={bytes}");
    let direct = Command::new("sh")
        .args(["-c", "exec curl -sS --resolve \"$1\" --cacert \"$2\" \"$3\" | sha256sum", "-"])
        .arg(format!("example.org:443:{WEB}"))
        .args([scene.internet.authority_file().into_os_string(), from(BYTES).into()])
        .output();
    let expected = String::from_utf8(direct.unwrap().stdout).unwrap();
    let output = scene.run(&format!("curl -sS '{}' | sha256sum", from(BYTES))).ok();
    assert_eq!(output, expected);
    scene.is_audited("what was carried", |record| {
        let carried = record["facts"]["received_bytes"].as_u64();
        record["operation"] == "egress.ended" && carried.is_some_and(|bytes| bytes > BYTES)
    });
    let script = "head -c 64M /dev/urandom > /var/up; \
                  for how in 'expect:' 'transfer-encoding: chunked'; do \
                  curl -sS -H \"$how\" -T /var/up https://example.org/up; \
                  curl -sS -H \"$how\" -T /var/up http://example.org/up; done; \
                  sha256sum /var/up | cut -d ' ' -f 1";
    let output = scene.run(script).ok();
    let digests: Vec<_> = output.lines().collect();
    assert!(digests.len() == 5 && digests.iter().all(|one| *one == digests[0]), "{output}");
}

#[test]
fn a_download_is_not_much_slower_than_without_a_bridge() {
    let Some(scene) = Scene::or_skip(&["example.org"]) else { return };
    let url = format!("http://example.org/bytes?n={BYTES}");
    let speed = "-sS -o /dev/null -w %{speed_download}";
    let rate_of = |output: &str| output.trim().parse::<f64>().unwrap();
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let script = format!("exec curl {speed} --resolve example.org:80:{WEB} '{url}'");
        let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
        direct.push(rate_of(&String::from_utf8(ran.stdout).unwrap()));
        through.push(rate_of(&scene.run(&format!("curl {speed} '{url}'")).ok()));
    }
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let (direct, through) = (best(&direct), best(&through));
    let share = through / direct;
    println!("{:.0} MB/s of {:.0} MB/s: {share:.3}", through / 1e6, direct / 1e6);
    assert!(share > RATE_MIN, "{through} B/s of {direct} B/s");
}

#[test]
fn a_client_that_does_not_read_delays_nobody() {
    let Some(scene) = Scene::or_skip(&["example.org"]) else { return };
    // Some who ask for much and read nothing, at one address; then others there.
    let code = format!(
        r#"
import socket, time, urllib.request
lazy = []
for _ in range(20):
    peer = socket.create_connection(("example.org", 80), 20)
    peer.sendall(b"GET /bytes?n={BYTES} HTTP/1.1\r\nHost: example.org\r\n\r\n")
    lazy.append(peer)
    peer.recv(1)
for _ in range(50):
    assert urllib.request.urlopen("http://example.org/hello", timeout=20).read() == b"hello from example.org\n"
# They are not forgotten either.
left = {BYTES}
while left > {BYTES} - (8 << 20): left -= len(lazy[7].recv(65536))
print("fine")"#
    );
    assert_eq!(scene.python(&code).ok(), "fine\n");
    let resident = tests::resident_bytes(scene.server.daemon_pid()).unwrap();
    assert!(resident < 256 << 20, "{resident} bytes");
}

#[test]
fn an_end_that_breaks_off_is_no_orderly_one() {
    let rule = "db.example.com:5432";
    let Some(scene) = Scene::or_skip(&[rule, "example.org"]) else { return };
    let code = r#"
import socket, struct
# The other side is over in order, though nothing was said to it.
peer = socket.create_connection(("db.example.com", 5432), 20)
peer.recv(100); peer.shutdown(socket.SHUT_WR)
received = b""
while more := peer.recv(100): received += more
assert received == b"you are ", received
# The bridge's own end: a request that it does not carry.
peer = socket.create_connection(("example.org", 80), 20)
peer.sendall(b"GET /hello HTTP/1.1\r\nHost: example.org\r\n\r\n")
received = b""
while b"hello from" not in received or not received.endswith(b"\n"): received += peer.recv(1000)
peer.sendall(b"GET /hello HTTP/1.1\r\nHost: example.net\r\n\r\n")
try: print("ended", peer.recv(100))
except ConnectionResetError: print("reset")"#;
    assert_eq!(scene.python(code).ok(), "reset\n");
}

#[test]
fn a_server_that_is_not_there_is_reported() {
    let Some(scene) = Scene::or_skip(&["gone.example.com:81"]) else { return };
    let began = Instant::now();
    scene.run("curl -sS -m 30 http://gone.example.com:81/").fails();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    scene.is_refused("gone.example.com", "cannot connect to");
}

#[test]
fn an_answer_to_the_last_request_of_a_connection_waits_for_its_reader() {
    let Some(scene) = Scene::or_skip(&["example.org"]) else { return };
    // Little of it fits where the client would find it, and all of it where it waits for the client.
    let code = r#"
import hashlib, socket
COUNT = 200_000
def digest(to, head, body=b""):
    peer = socket.socket(); peer.settimeout(30)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(to); peer.sendall(head.encode() + body)
    received = b""
    while more := peer.recv(500): received += more
    head, _, body = received.partition(b"\r\n\r\n")
    assert len(body) == COUNT, (len(body), head)
    return hashlib.sha256(body).hexdigest()
get = lambda target, more="": f"GET {target}/bytes?n={COUNT} HTTP/1.1\r\nHost: example.org\r\n{more}\r\n"
digests = {digest(("198.18.0.1", 3128), get("http://example.org")) for _ in range(5)}
digests |= {digest(("example.org", 80), get("", "Content-Length: 2\r\n"), b"hi") for _ in range(5)}
assert len(digests) == 1, digests
print("fine")"#;
    assert_eq!(scene.python(code).ok(), "fine\n");
}

/// How much the counted bytes may differ from those that a program has sent and received: heads of requests are in them.
const TOLERANCE: f64 = 0.02;

#[test]
fn what_is_carried_is_counted_over_the_end_of_a_bridge() {
    let Some(mut scene) = Scene::or_skip(&["example.org"]) else { return };
    let counted = |scene: &Scene| {
        let usage = scene.client().get("/v1/sandboxes/default/a/usage").expect(200).json();
        ["egress_received_bytes", "egress_sent_bytes"].map(|field| usage[field].as_f64().unwrap())
    };
    let near = |counted: f64, really: f64| (really..really * (1.0 + TOLERANCE)).contains(&counted);
    let (down, up) = (f64::from(32 << 20), f64::from(16 << 20));
    let download = format!("curl -sS -o /dev/null 'http://example.org/bytes?n={}'", 32 << 20);
    let upload =
        "head -c 16M /dev/zero | curl -sS -H expect: -o /dev/null -T - http://example.org/up";
    scene.run(&download).ok();
    tests::eventually("the download is counted", || near(counted(&scene)[0], down));
    scene.server.end_and_serve_again();
    let kept = counted(&scene);
    assert!(near(kept[0], down), "{kept:?} after the bridge was started again");
    scene.run(upload).ok();
    scene.run(&download).ok();
    tests::eventually("all is counted", || {
        let [received, sent] = counted(&scene);
        near(received, 2.0 * down) && near(sent, up)
    });
    // Nothing is counted twice, or later.
    std::thread::sleep(Duration::from_secs(3));
    let [received, sent] = counted(&scene);
    assert!(near(received, 2.0 * down) && near(sent, up), "{received} and {sent}");
}
