//! Secrets that no sandbox has: what goes to their hosts has them in its head, and nothing else has
//! them anywhere.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tests::eventually;
use tests::internet::{Internet, NAME_SERVER};
use tests::{Burrow, have_or_skip, server::Server};

use super::packages::{empty_repository, make, works_with};
use super::{NAME, PROXY, Scene};

pub(super) const VALUE: &str = "ghp_GoesOutAndNeverIn";
pub(super) const PLACEHOLDER: &str = "burrow-secret~github~";
/// The secret's hosts, of which the last has a certificate of nobody.
pub(super) const HOSTS: [&str; 3] = ["api.example.org", "example.com", "api.example.edu"];

/// A bridge whose configuration has the secret, and no sandbox yet.
pub(super) fn empty_or_skip() -> Option<Scene> {
    empty_for_or_skip(&HOSTS)
}

/// The same with other hosts of the secret.
pub(super) fn empty_for_or_skip(hosts: &[&str]) -> Option<Scene> {
    empty_with_or_skip(hosts, &[])
}

/// The same with options of the bridge.
pub(super) fn empty_with_or_skip(hosts: &[&str], more: &[&str]) -> Option<Scene> {
    let internet = Internet::or_skip()?;
    fs::write(value_file(&internet), VALUE).unwrap();
    let config = internet.served().with_file_name("burrow.toml");
    let text = format!(
        "[egress]\ndns = \"{NAME_SERVER}:53\"\nca = [\"{}\"]\n\
         [secrets.github]\nfile = \"{}\"\nnamespaces = \"*\"\nhosts = {hosts:?}\n\
         fields = [\"Authorization\", \"Token\"]\n",
        internet.authority_file().display(),
        value_file(&internet).display(),
    );
    fs::write(&config, text).unwrap();
    let options = [&["--dev", "--config", config.to_str().unwrap()], more].concat();
    Some(Scene { server: Server::start_in(Burrow::new(), &options), internet })
}

fn value_file(internet: &Internet) -> PathBuf {
    internet.served().with_file_name("token")
}

fn scene_or_skip() -> Option<Scene> {
    let scene = empty_or_skip()?;
    let rules = ["api.example.org", "example.com", "api.example.edu", "*.example.net"];
    let body = json!({ "name": NAME, "egress": rules, "secrets": ["github"] });
    scene.client().post("/v1/sandboxes", &body).expect(201);
    Some(scene)
}

impl Scene {
    /// Runs a script with the environment that the sandbox has by itself.
    pub(super) fn plainly(&self, script: &str) -> super::Ran {
        self.server.run(&["exec", NAME, "--", "sh", "-c", script]).into()
    }

    /// The fields of the web's requests for this path.
    pub(super) fn received(&self, path: &str) -> Vec<String> {
        let requests = self.internet.requests();
        let of_path = requests.iter().filter(|one| one["path"] == path);
        let fields = of_path.flat_map(|one| [&one["authorization"], &one["token"]]);
        fields.filter_map(|field| field.as_str().map(str::to_owned)).collect()
    }
}

#[test]
fn programs_send_what_they_do_not_have() {
    let Some(scene) = scene_or_skip() else { return };
    assert_eq!(scene.plainly("printf %s \"$GITHUB\"").ok(), PLACEHOLDER);
    let python = r#"
import os, ssl, urllib.request
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT
request = urllib.request.Request("https://api.example.org/python", headers={"token": os.environ["GITHUB"]})
try: urllib.request.urlopen(request, context=context)
except urllib.error.HTTPError as error: print(error.code)"#;
    assert_eq!(
        scene.server.feed(&["exec", "-i", NAME, "--", "python3", "-"], python.as_bytes()).stdout,
        b"404\n"
    );
    let script = r#"
curl -sS -H "authorization: Bearer $GITHUB" https://api.example.org/curl
curl -sS -u "me:$GITHUB" https://example.com/basic
curl -sS -H "token: a $GITHUB b $GITHUB" https://api.example.org:443/twice https://api.example.org/again
node -e 'fetch("https://api.example.org/node", { headers: { token: process.env.GITHUB } })
  .then(it => it.text()).then(it => process.stdout.write(it))'
git -c http.extraHeader="token: $GITHUB" ls-remote https://api.example.org/a.git
"#;
    let output = scene.plainly(script);
    let plain = |path: &str| scene.received(path);
    assert_eq!(plain("/python"), [VALUE], "{output:?}");
    assert_eq!(plain("/curl"), [format!("Bearer {VALUE}")], "{output:?}");
    // `me:` and the value, as curl would have encoded them.
    assert_eq!(plain("/basic"), ["Basic bWU6Z2hwX0dvZXNPdXRBbmROZXZlcklu"], "{output:?}");
    for path in ["/twice", "/again"] {
        assert_eq!(plain(path), [format!("a {VALUE} b {VALUE}")], "{output:?}");
    }
    assert_eq!(plain("/node"), [VALUE], "{output:?}");
    assert_eq!(plain("/a.git/info/refs?service=git-upload-pack"), [VALUE], "{output:?}");
    let proxied: Vec<_> =
        PROXY.iter().map(|(name, value)| format!("export {name}={value}\n")).collect();
    let proxied = proxied.concat();
    scene.plainly(&format!(
        "{proxied}curl -sS -H \"token: $GITHUB\" https://api.example.org/proxied"
    ));
    assert_eq!(plain("/proxied"), [VALUE]);
    scene.is_audited("which secret went where", |record| {
        record["operation"] == "egress.secret"
            && record["secrets"] == json!(["github"])
            && record["facts"]["host"] == "api.example.org"
    });
    // Whatever the sandbox can look at, and whatever is kept of it.
    let looks =
        "grep -rlsa \"ghp_GoesOut\"\"AndNeverIn\" /proc/*/environ /etc /run /tmp /var; true";
    assert_eq!(scene.plainly(looks).ok(), "");
    let text = std::process::Command::new("grep")
        .args(["-rlsa", VALUE])
        .args([scene.server.state(), scene.server.runtime(), scene.server.log()])
        .output();
    assert_eq!(String::from_utf8(text.unwrap().stdout).unwrap(), "");
}

#[test]
fn git_pushes_with_a_password_that_it_does_not_have() {
    let Some(scene) = scene_or_skip() else { return };
    if !have_or_skip("git") {
        return;
    }
    let repository = empty_repository(&scene);
    let from = "\"https://me:$GITHUB@api.example.org/locked/work.git\"";
    let output = scene.plainly(&works_with(from, "pushed")).ok();
    let commits: Vec<_> = output.lines().collect();
    let there = make(&repository, "git rev-parse main");
    assert_eq!(commits, [there.trim_end(); 2]);
    let wrong =
        "GIT_TERMINAL_PROMPT=0 git ls-remote https://me:wrong@api.example.org/locked/work.git";
    scene.plainly(wrong).fails();
    assert_eq!(scene.plainly(&format!("grep -rs {VALUE} /var")).fails().stdout, "");
}

#[test]
fn nothing_else_has_it() {
    let Some(scene) = scene_or_skip() else { return };
    let script = r#"
curl -sS -H "token: $GITHUB" http://api.example.org/plain
curl -sS -H "token: $GITHUB" -k https://www.example.net/other
curl -sS "https://api.example.org/path/$GITHUB"
curl -sS -d "$GITHUB" -H 'token: none' https://api.example.org/body
curl -sS -X TRACE -H "token: $GITHUB" https://api.example.org/trace
curl -sS -H "token: $GITHUB" -H 'host: example.com' https://api.example.org/fronted
curl -sS -H "token: $GITHUB" https://api.example.edu/nobodys
curl -sS -H "origin: $GITHUB" https://api.example.org/given-back
curl -sS -H "token: $GITHUB" --connect-to ::api.example.org:80 https://api.example.org/at-80
"#;
    let output = scene.plainly(script);
    assert_eq!(scene.received("/plain"), [PLACEHOLDER], "{output:?}");
    assert_eq!(scene.received("/other"), [PLACEHOLDER], "{output:?}");
    let requests = scene.internet.requests();
    assert!(
        requests
            .iter()
            .all(|one| one["origin"].as_str().is_none_or(|output| output == PLACEHOLDER))
    );
    let paths: Vec<_> = requests.iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        ["/plain", "/other", "/path/burrow-secret~github~", "/body", "/given-back"],
        "{output:?}"
    );
    scene.is_refused("api.example.org", "it asks the server to echo it (TRACE)");
    scene.is_refused("api.example.org", "it is for the host");
    assert!(
        output.stdout.contains(&tests::sha256(PLACEHOLDER)),
        "the body is as it was: {output:?}"
    );
    scene.is_audited("the host that shows no good certificate", |record| {
        record["facts"]["host"] == "api.example.edu"
            && record["facts"]["why"].as_str().is_some_and(|why| why.contains("TLS with the host"))
    });
}

#[test]
fn a_refused_client_gets_the_reason() {
    let Some(scene) = scene_or_skip() else { return };
    let python = r#"
import http.client, os, socket, ssl
name = "api.example.org"
def connected():
    return ssl.create_default_context().wrap_socket(socket.create_connection((name, 443), 30), server_hostname=name)
def get(host=name, method="GET", more=""):
    return f"{method} /refused HTTP/1.1\r\nhost: {host}\r\n{more}\r\n".encode()
for request, why in [
    (get("example.com"), "it is for the host"),
    (get(method="TRACE"), "it asks the server to echo it (TRACE)"),
    (get(method="CONNECT"), "it asks the server for a tunnel (CONNECT)"),
    (get(more="upgrade: other\r\nconnection: upgrade\r\n"), "it asks to upgrade to"),
    (get(more="content-length: 1\r\ntransfer-encoding: chunked\r\n"), "it has both content-length and transfer-encoding"),
    (get(more="x: " + "y" * 70000 + "\r\n"), "its head has more than"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "its first line"),
]:
    for size in [len(request), 7] if len(request) < 1000 else [len(request)]:
        peer = connected()
        for at in range(0, len(request), size): peer.sendall(request[at:at + size])
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        # To the last word of TLS, without which reading on is an error.
        received = answer.read().decode() + peer.recv(100).decode()
        assert answer.status == 403 and why in received, (request[:100], answer.status, received)
        peer.unwrap().close()
# One that offers the second version is carried, without the offer.
peer = connected()
peer.sendall(get(more=f"token: {os.environ['GITHUB']}\r\nupgrade: h2c\r\nconnection: upgrade\r\n").replace(b"/refused", b"/hello"))
answer = http.client.HTTPResponse(peer)
answer.begin()
print(answer.status)"#;
    let output = scene.server.feed(&["exec", "-i", NAME, "--", "python3", "-"], python.as_bytes());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200\n", "{output:?}");
    let script = "curl -sS -o /dev/null -w '%{http_code}' -X TRACE https://api.example.org/refused";
    assert_eq!(scene.plainly(script).ok(), "403");
    assert_eq!(scene.received("/hello"), [VALUE]);
    assert_eq!(scene.internet.requests().len(), 1, "nothing of the others went on");
    scene.is_refused("api.example.org", "it asks the server to echo it (TRACE)");
}

#[test]
fn large_and_long_transfers_arrive_complete() {
    let Some(scene) = scene_or_skip() else { return };
    let script = r"
curl -sS 'https://api.example.org/bytes?n=67108864' | sha256sum
curl -sS -k 'https://www.example.net/bytes?n=67108864' | sha256sum
head -c 16M /dev/urandom > /var/up
curl -sS -T /var/up https://api.example.org/up
curl -sS -H 'transfer-encoding: chunked' -T /var/up https://api.example.org/up
sha256sum /var/up | cut -d ' ' -f 1
";
    let output = scene.plainly(script).ok();
    let lines: Vec<_> = output.lines().collect();
    assert!(lines.len() == 5 && lines[0] == lines[1], "{output}");
    assert!(lines[2] == lines[4] && lines[3] == lines[4], "{output}");
    let python = r#"
import os, socket, ssl
peer = ssl.create_default_context().wrap_socket(
    socket.create_connection(("api.example.org", 443)), server_hostname="api.example.org")
peer.sendall(f"GET /socket HTTP/1.1\r\nhost: api.example.org\r\nupgrade: websocket\r\n"
    f"connection: upgrade\r\ntoken: {os.environ['GITHUB']}\r\n"
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
received = b""
while not received.endswith(b"welcome"): received += peer.recv(1000)
peer.sendall(b"\x82\x03abc")
print(received[:12], peer.recv(100))"#;
    let output = scene.server.feed(&["exec", "-i", NAME, "--", "python3", "-"], python.as_bytes());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "b'HTTP/1.1 101' b'\\x82\\x03abc'\n");
    assert_eq!(scene.received("/socket"), [VALUE]);
}

#[test]
fn a_body_that_waits_to_be_asked_for_comes_when_it_is() {
    let Some(scene) = scene_or_skip() else { return };
    let script = r#"
head -c 32M /dev/urandom > /var/up
send() { curl -sS --expect100-timeout 600 -H 'expect: 100-continue' -H "token: $GITHUB" "$@"; }
send -T /var/up https://api.example.org/up
send -H 'transfer-encoding: chunked' -T /var/up https://api.example.org/up
sha256sum /var/up | cut -d ' ' -f 1
# One that is not asked for stays where it is, whatever it would cost.
send -o /dev/null -w '%{http_code} %{size_upload}\n' -T /var/up https://api.example.org/unwanted
"#;
    let output = scene.plainly(script).ok();
    let lines: Vec<_> = output.lines().collect();
    assert!(lines.len() == 4 && lines[0] == lines[2] && lines[1] == lines[2], "{output}");
    assert_eq!(lines[3], "413 0");
    assert_eq!(
        (scene.received("/up"), scene.received("/unwanted")),
        (vec![VALUE.to_owned(); 2], vec![])
    );
    // Nobody sends a byte of it before.
    let python = r#"
import hashlib, os, socket, ssl
peer = ssl.create_default_context().wrap_socket(
    socket.create_connection(("api.example.org", 443), 60), server_hostname="api.example.org")
body = os.urandom(8 << 20)
for _ in range(2):
    peer.sendall(f"PUT /up HTTP/1.1\r\nhost: api.example.org\r\ntoken: {os.environ['GITHUB']}\r\n"
        f"content-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n".encode())
    received = b""
    while not received.endswith(b"\r\n\r\n"): received += peer.recv(1)
    assert received.startswith(b"HTTP/1.1 100 "), received
    peer.sendall(body)
    digest, received = hashlib.sha256(body).hexdigest().encode(), b""
    while not received.endswith(digest + b"\n"): received += peer.recv(1000)
    assert received.startswith(b"HTTP/1.1 200 "), received
print("fine")"#;
    let output = scene.server.feed(&["exec", "-i", NAME, "--", "python3", "-"], python.as_bytes());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{output:?}");
    assert_eq!(scene.received("/up"), [VALUE; 4]);
}

#[test]
fn another_bridge_goes_on_with_it_as_long_as_it_can_be_reached() {
    let Some(mut scene) = scene_or_skip() else { return };
    let send = "curl -sS -m 20 -H \"token: $GITHUB\" https://api.example.org/sent";
    scene.plainly(send).ok();
    // A program does not read the trusted certificates twice.
    let certificate = scene.plainly("cp /etc/ssl/burrow-authorities.pem /var/before.pem").ok();
    assert_eq!(certificate, "");
    scene.server.kill_and_serve_again();
    eventually("the sandbox reaches the host again", || scene.plainly(send).code == Some(0));
    scene.plainly(&format!("{send} --cacert /var/before.pem")).ok();
    assert!(
        scene.received("/sent").iter().all(|value| value == VALUE),
        "{:?}",
        scene.received("/sent")
    );
    fs::remove_file(value_file(&scene.internet)).unwrap();
    scene.server.end_and_serve_again();
    eventually("other hosts are reached again", || {
        scene.plainly("curl -sS -m 20 -k https://www.example.net/hello").code == Some(0)
    });
    let before = scene.received("/sent").len();
    let output = scene.plainly(send).ok();
    assert!(output.contains("could not be read again") && !output.contains(VALUE), "{output}");
    assert_eq!(scene.received("/sent").len(), before, "nothing goes there without it");
    scene.is_refused("api.example.org", "could not be read again");
}

#[test]
fn a_sandbox_that_may_not_reach_its_hosts_does_not_get_it() {
    let Some(scene) = empty_or_skip() else { return };
    for rules in [&[][..], &["api.example.org", "example.com"], &["*.example.org:8443"]] {
        let body = json!({ "name": NAME, "egress": rules, "secrets": ["github"] });
        let refused = scene.client().post("/v1/sandboxes", &body).expect(400);
        assert_eq!(refused.code(), "invalid");
        assert!(refused.text().contains("is only sent to"), "{}", refused.text());
    }
    fs::write(value_file(&scene.internet), "two\nlines").unwrap();
    let body = json!({ "name": NAME, "egress": ["public"], "secrets": ["github"] });
    let refused = scene.client().post("/v1/sandboxes", &body).expect(400);
    assert!(refused.text().contains("contains a line break"), "{}", refused.text());
}
