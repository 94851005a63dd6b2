//! Certificates between bridges: a node that shows none, another authority's or another node's is not one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tests::fleet::{GRACE, Nats};
use tests::{Burrow, eventually, have_or_skip};

/// An authority, and the certificates that it signs.
pub(super) struct Authority(PathBuf);

fn openssl(arguments: &[&str]) {
    let made = Command::new("openssl").args(arguments).output().expect("openssl runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

impl Authority {
    pub(super) fn new(directory: &Path, name: &str) -> Self {
        let ca = Self(directory.join(name));
        fs::create_dir(&ca.0).expect("a directory");
        let subject = format!("/CN={name}");
        let (key, pem) = (ca.path("ca.key"), ca.path("ca.pem"));
        openssl(
            &[
                &["req", "-x509", "-days", "2", "-subj", &subject][..],
                &NEW_KEY,
                &["-keyout", &key, "-out", &pem],
            ]
            .concat(),
        );
        ca
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A certificate for one address.
    pub(super) fn sign(&self, name: &str, address: &str) -> (String, String) {
        let path = |end: &str| self.path(&format!("{name}.{end}"));
        let (key, request, pem, names) = (path("key"), path("csr"), path("pem"), path("ext"));
        fs::write(&names, format!("subjectAltName=IP:{address}\n")).expect("a file");
        let subject = format!("/CN={name}");
        openssl(
            &[&["req", "-subj", &subject][..], &NEW_KEY, &["-keyout", &key, "-out", &request]]
                .concat(),
        );
        let (ca, ca_key) = (self.path("ca.pem"), self.path("ca.key"));
        let signed = ["x509", "-req", "-days", "2", "-CAcreateserial", "-in", &request, "-CA", &ca];
        openssl(&[&signed[..], &["-CAkey", &ca_key, "-extfile", &names, "-out", &pem]].concat());
        (pem, key)
    }
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// A bridge with TLS at an address of its own, as a node that shows `shown` to others.
struct Secured {
    burrow: Burrow,
    url: String,
}

fn serve(nats: &Nats, node: &str, address: &str, options: &[String]) -> Secured {
    let mut burrow = Burrow::new();
    let (url, listen) = (nats.url(), format!("{address}:0"));
    let name = format!("fleet.node={node}");
    let host = format!("server.allowed_hosts={address}");
    let own = ["--dev", "--listen", &listen, "--fleet", &url, "--set", &name, "--set", GRACE];
    let mut all: Vec<&str> = [&own[..], &["--set", &host]].concat();
    for option in options {
        all.extend(["--set", option]);
    }
    burrow.serve_with(&all);
    let mut found = None;
    eventually("it says where it listens", || {
        let log = fs::read_to_string(burrow.scratch().join("serve.log")).unwrap_or_default();
        found = log.lines().find_map(|line| {
            let (_, url) = line.split_once("listening on ")?;
            url.starts_with("https://").then(|| url.to_owned())
        });
        found.is_some()
    });
    Secured { burrow, url: found.expect("it was said") }
}

impl Secured {
    /// What `curl` gets, which trusts the authority and shows nothing.
    fn get(&self, ca: &Authority, path: &str) -> (String, Value) {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20", "--cacert"])
            .args([&ca.path("ca.pem"), "--write-out", "\n%{http_code}"])
            .arg(format!("{}{path}", self.url))
            .stdin(Stdio::null())
            .output()
            .expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap_or_default();
        (status.to_owned(), serde_json::from_str(body).unwrap_or_default())
    }
}

fn set(name: &str, value: &str) -> String {
    format!("{name}={value}")
}

/// The options of a node whose server has one certificate, and which shows another one to others.
fn options(
    ca: &Authority,
    server: &(String, String),
    shown: Option<&(String, String)>,
    asks: bool,
) -> Vec<String> {
    let mut options = vec![
        set("server.tls_certificate", &server.0),
        set("server.tls_key", &server.1),
        set("fleet.ca", &ca.path("ca.pem")),
    ];
    if let Some((certificate, key)) = shown {
        options.push(set("fleet.certificate", certificate));
        options.push(set("fleet.key", key));
    }
    if asks {
        options.push(set("fleet.mutual_tls", "true"));
    }
    options
}

#[test]
fn only_a_node_with_its_own_certificate_speaks_as_it() {
    let Some(nats) = Nats::start() else { return };
    if !have_or_skip("openssl") || !have_or_skip("curl") {
        return;
    }
    let directory = TempDir::with_prefix("burrow-tls-").expect("a directory");
    let ca = Authority::new(directory.path(), "ours");
    let other = Authority::new(directory.path(), "foreign");
    // Addresses of this host's own, so that each certificate is for one of them.
    let [owner, good, none, foreign, thief] =
        ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"];
    let own = |name: &str, address: &str| ca.sign(name, address);
    let at_owner = own("owner", owner);
    let first = serve(&nats, "owner", owner, &options(&ca, &at_owner, Some(&at_owner), true));
    let at_good = own("good", good);
    let second = serve(&nats, "good", good, &options(&ca, &at_good, Some(&at_good), true));
    // One that shows nothing, one of another authority, and one that shows what is `good`'s.
    let third = serve(&nats, "none", none, &options(&ca, &own("none", none), None, false));
    let shown = other.sign("foreign", foreign);
    let of_foreign = options(&ca, &own("foreign", foreign), Some(&shown), false);
    let fourth = serve(&nats, "foreign", foreign, &of_foreign);
    let of_thief = options(&ca, &own("thief", thief), Some(&at_good), false);
    let fifth = serve(&nats, "thief", thief, &of_thief);
    first.burrow.ok(&["start", "--node-label", "node=owner", "--name", "there"]);
    let there = "/v1/sandboxes/default/there";
    eventually("a node with its certificate reaches it", || second.get(&ca, there).0 == "200");
    // A client needs no certificate.
    assert_eq!(first.get(&ca, there).0, "200");
    for (node, why) in [(&third, "no certificate"), (&fifth, "not for")] {
        eventually("it is told why", || {
            let (status, body) = node.get(&ca, there);
            assert_ne!(status, "200", "{body}");
            body["message"].as_str().is_some_and(|message| message.contains(why))
        });
    }
    // The handshake itself fails: there is no word about it.
    let (status, body) = fourth.get(&ca, there);
    assert_eq!(status, "503", "{body}");
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("owner"), "{body}");
    // Lists name a node that is refused, too.
    let (_, page) = third.get(&ca, "/v1/sandboxes?all_nodes=true");
    let unanswered = page["unanswered"].as_array().expect("some do not answer").clone();
    assert!(unanswered.iter().any(|one| one["node"] == "owner"), "{page}");
}

#[test]
fn a_node_that_asks_for_certificates_needs_its_own() {
    let burrow = Burrow::new();
    let output = burrow.run(&["serve", "--check-config", "--set", "fleet.mutual_tls=true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_told = stderr.contains("fleet.mutual_tls needs fleet.ca");
    assert!(!output.status.success() && is_told, "{stderr}");
}
