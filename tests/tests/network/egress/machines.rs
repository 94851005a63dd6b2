//! The same from a machine with a kernel of its own, whose programs may do as its root: what is not
//! there cannot be reached in any way that they may think of.

use serde_json::json;
use tests::eventually;
use tests::internet::Internet;
use tests::machines::machines_or_skip;

use super::secrets::{HOSTS, PLACEHOLDER, VALUE, empty_or_skip};
use super::{NAME, Scene};

fn machine_or_skip(rules: &[&str]) -> Option<Scene> {
    if !machines_or_skip() {
        return None;
    }
    let internet = Internet::or_skip()?;
    let scene = Scene { server: internet.bridge(&[]), internet };
    let body = json!({
        "name": NAME, "egress": rules, "machine": "qemu", "image": "python", "memory_mib": 256,
    });
    scene.client().post("/v1/sandboxes", &body).expect(201);
    Some(scene)
}

/// Defines `fetch` and `fails`.
const TOOLS: &str = r#"
import errno, os, socket, ssl, urllib.request
context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
def fetch(url): return urllib.request.urlopen(url, timeout=60, context=context).read().decode()
def fails(family, kind, to):
    peer = socket.socket(family, kind); peer.settimeout(30)
    try: peer.connect(to); peer.send(b"x"); peer.recv(10)
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
    finally: peer.close()
    return "no error"
V4, V6, UDP, TCP = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
"#;

#[test]
fn a_machine_reaches_what_is_allowed_and_nothing_else() {
    let Some(scene) = machine_or_skip(&["*.example.com", "db.example.org:5432"]) else { return };
    scene.keep_authority(NAME);
    let code = r#"
assert fetch("https://www.example.com/hello") == "hello from www.example.com\n"
assert fetch("http://www.example.com/hello") == "hello from www.example.com\n"
peer = socket.create_connection(("db.example.org", 5432), 60)
assert peer.recv(100) == b"who are you?\n"
for name in ["example.com", "example.net", "localhost.localdomain", "db.example.com.evil.net"]:
    try: raise SystemExit(f"{name} is {socket.gethostbyname(name)}")
    except OSError: pass
assert os.listdir("/sys/class/net") == ["lo"], os.listdir("/sys/class/net")
for to in ["93.184.216.34", "169.254.169.254", "10.1.2.3", "192.168.0.1"]:
    for kind in [UDP, TCP]: assert fails(V4, kind, (to, 443)) == "ENETUNREACH", to
for kind in [UDP, TCP]: assert fails(V6, kind, ("2606:2800::1", 443)) == "ENETUNREACH"
assert fails(V4, TCP, ("198.18.7.7", 443)) == "ECONNREFUSED"
# Its host, at whatever port: the agent's own way to it is not for others.
for port in [1, 22, 53, 80, 443, 1023, 1024, 1025, 5555, 2**32 - 2]:
    peer = socket.socket(socket.AF_VSOCK, TCP)
    try:
        peer.connect((2, port)); peer.sendall(b"x" * 100)
        received = peer.recv(10)
    except OSError as error: received = b""
    assert received == b"", (port, received)
print("fine")"#;
    assert_eq!(scene.python(&format!("{TOOLS}{code}")).ok(), "fine\n");
    scene.only_the_internet_was_reached();
    scene.is_refused("example.net", "no rule allows it");
}

#[test]
fn a_machine_without_rules_has_no_way_at_all() {
    let Some(scene) = machine_or_skip(&[]) else { return };
    let code = r#"
import errno, os, socket
assert os.listdir("/sys/class/net") == ["lo"]
assert "198.18." not in (open("/etc/resolv.conf").read() if os.path.exists("/etc/resolv.conf") else "")
def listed(name): return open("/proc/net/" + name).read().splitlines()[1:]
assert not listed("tcp") and not listed("udp"), (listed("tcp"), listed("udp"))
for to in [("198.18.0.1", 53), ("198.18.0.1", 3128), ("198.18.0.2", 80), ("93.184.216.34", 80)]:
    peer = socket.socket(); peer.settimeout(30)
    error = peer.connect_ex(to)
    assert error in [errno.ECONNREFUSED, errno.ENETUNREACH], (to, error)
try: raise SystemExit(socket.gethostbyname("example.org"))
except OSError: print("fine")"#;
    assert_eq!(scene.python(code).ok(), "fine\n");
    assert_eq!(scene.audited(), [0; 0]);
}

#[test]
fn a_clone_has_its_own_rules_and_the_names_of_what_it_was_cloned_from() {
    let Some(scene) = machine_or_skip(&["*.example.com:5432", "a.example.org"]) else { return };
    let names =
        "getent ahostsv4 h1.example.com h2.example.com a.example.org | awk '{print $1}' | uniq";
    let known = scene.run(names).ok();
    assert_eq!(known.lines().count(), 3, "{known}");
    scene.server.ok(&["snapshot", NAME, "base"]);
    // As it was: an address that a program remembers is that of the same name.
    let start = |name: &str, rules: &[&str]| {
        let mut words = vec!["start", "--snapshot", "base", "--name", name];
        words.extend(rules.iter().flat_map(|rule| ["--egress", rule]));
        scene.server.ok(&words);
    };
    start("alike", &["*.example.com:5432", "a.example.org"]);
    start("less", &["h2.example.com:5432"]);
    start("none", &[]);
    let reaches = |name: &str, address: &str| {
        let code = format!(
            "import socket\npeer = socket.create_connection(('{address}', 5432), 60)\n\
             print(peer.recv(100))"
        );
        let ran = scene.python_in(name, &code);
        ran.stdout.contains("who are you")
    };
    let addresses: Vec<_> = known.lines().collect();
    eventually("the clone is led to the same name", || reaches("alike", addresses[0]));
    assert_eq!(scene.run_in("alike", names, &[]).ok(), known);
    assert!(reaches("less", addresses[1]) && !reaches("less", addresses[0]));
    assert!(!reaches("none", addresses[0]) && !reaches("none", addresses[1]));
    let listens =
        "awk '$2 ~ /1[23]C6:/ && ($4 == \"0A\" || $4 == \"07\")' /proc/net/tcp /proc/net/udp";
    assert_eq!(scene.run_in("none", listens, &[]).stdout, "", "nobody listens any more");
    assert_ne!(scene.run_in("less", listens, &[]).stdout, "", "the same sees who listens");
    // What is new to one of them is not new to the other.
    scene.run("getent ahostsv4 h3.example.com").ok();
    let mine = scene.run_in("alike", "getent ahostsv4 h4.example.com | head -1", &[]).ok();
    assert!(reaches("alike", mine.split(' ').next().unwrap()));
    assert!(reaches(NAME, addresses[0]));
}

#[test]
fn a_machine_sends_what_it_does_not_have_whichever_bridge_it_has() {
    if !machines_or_skip() {
        return;
    }
    let Some(mut scene) = empty_or_skip() else { return };
    let body = json!({
        "name": NAME, "egress": HOSTS, "secrets": ["github"], "machine": "qemu", "image": "python",
        "memory_mib": 256,
    });
    scene.client().post("/v1/sandboxes", &body).expect(201);
    // With nothing but what the sandbox has by itself: whom it trusts, too.
    let plainly = |scene: &Scene, code: &str| -> super::Ran {
        let fed = ["exec", "-i", NAME, "--", "python3", "-"];
        scene.server.feed(&fed, code.as_bytes()).into()
    };
    let send = r#"
import os, ssl, urllib.error, urllib.request
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT
request = urllib.request.Request("https://api.example.org/machine", headers={"token": os.environ["GITHUB"]})
try: urllib.request.urlopen(request, timeout=60, context=context)
except urllib.error.HTTPError as error: print(error.code, os.environ["GITHUB"])"#;
    let sent = format!("404 {PLACEHOLDER}\n");
    assert_eq!(plainly(&scene, send).ok(), sent);
    assert_eq!(scene.received("/machine"), [VALUE]);
    // All that there is of it, as the machine's own root sees it.
    let (first, second) = VALUE.split_at(4);
    let looks = format!(
        r#"
import os
value = b"{first}" + b"{second}"
def files():
    for place in ["/etc", "/run", "/var", "/root", "/tmp"]:
        for at, _, names in os.walk(place): yield from (os.path.join(at, name) for name in names)
    for process in filter(str.isdigit, os.listdir("/proc")): yield f"/proc/{{process}}/environ"
def holds(path):
    try: return os.path.isfile(path) and value in open(path, "rb").read(1 << 24)
    except OSError: return False
print([path for path in files() if holds(path)])"#
    );
    assert_eq!(plainly(&scene, &looks).ok(), "[]\n");
    // A connection that was open is over as soon as another bridge is there; new ones are filled again.
    let keeps = r#"
import socket, ssl, sys
peer = ssl.create_default_context().wrap_socket(socket.create_connection(("api.example.org", 443), 60), server_hostname="api.example.org")
peer.settimeout(120)
open("/var/kept", "w").write("connected")
try: received = peer.recv(10)
except OSError as error: received = type(error).__name__
open("/var/kept", "w").write(f"over: {received}")"#;
    let start = "cat > /var/keeps.py; setsid python3 /var/keeps.py >/dev/null 2>&1 & echo";
    let started =
        scene.server.feed(&["exec", "-i", NAME, "--", "sh", "-c", start], keeps.as_bytes());
    assert!(started.status.success(), "{started:?}");
    let content = |scene: &Scene| scene.run("cat /var/kept").stdout;
    eventually("it is connected", || content(&scene) == "connected");
    scene.server.kill_and_serve_again();
    eventually("its connection broke off", || content(&scene).starts_with("over: "));
    eventually("the host is reached again", || plainly(&scene, send).stdout == sent);
    assert!(scene.received("/machine").iter().all(|value| value == VALUE));
}
