//! NATS as operators secure it: certificates of both sides, credentials files, and accounts that share a server.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::eventually;
use tests::fleet::{GRACE, Member, Nats};
use tests::have_or_skip;
use tests::http::Client;
use tests::server::Server;

use super::tls::Authority;

const AWAY: &str = "this node is not in its fleet: cannot reach NATS";

/// A bridge that cannot join says so in these words, and makes nothing.
fn refused(nats: &Nats, options: &[&str], words: &str) {
    let url = nats.url();
    let own = ["--dev", "--fleet", &url, "--set", "fleet.node=stranger", "--set", GRACE];
    let server = Server::start(&[&own[..], options].concat());
    eventually("it says why it is not in the fleet", || {
        let listed: Vec<Value> =
            serde_json::from_str(&server.ok(&["node", "ls", "--json"])).expect("JSON");
        let own = listed.iter().find(|node| node["here"] == true).expect("itself");
        own["trouble"].as_str().is_some_and(|trouble| trouble.contains(words))
    });
    let made = Client::new(server.url()).post("/v1/sandboxes", &json!({ "name": "one" }));
    let body = made.expect(503).json();
    assert_eq!(body["code"], "unavailable", "{body}");
}

#[test]
fn nats_with_certificates_takes_only_bridges_that_it_trusts_and_that_trust_it() {
    if !have_or_skip("openssl") {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let (ca, other) = (Authority::new(place.path(), "ca"), Authority::new(place.path(), "other"));
    let (server, server_key) = ca.sign("nats", "127.0.0.1");
    let (own, own_key) = ca.sign("n1", "127.0.0.1");
    let (foreign, foreign_key) = other.sign("n1", "127.0.0.1");
    let text = format!(
        "tls {{ cert_file: {server:?}, key_file: {server_key:?}, ca_file: {:?}, verify: true }}",
        ca.path("ca.pem")
    );
    let Some(nats) = Nats::start_with("tls", &text) else { return };
    let trusts = format!("fleet.ca={}", ca.path("ca.pem"));
    let shows = |pair: (&str, &str)| {
        [format!("fleet.certificate={}", pair.0), format!("fleet.key={}", pair.1)]
    };
    let [certificate, key] = shows((&own, &own_key));
    let options = ["--dev", "--set", &trusts, "--set", &certificate, "--set", &key];
    let members = ["n1", "n2"].map(|name| Member::join(&nats, name, &options));
    members[0].knows(2);
    members[0].client.post("/v1/sandboxes", &json!({ "name": "one" })).expect(201);
    members[1].client.get("/v1/sandboxes/default/one").expect(200);

    // Without a certificate, with another authority's, and with trust in another authority.
    refused(&nats, &["--set", &trusts], AWAY);
    let [certificate, key] = shows((&foreign, &foreign_key));
    refused(&nats, &["--set", &trusts, "--set", &certificate, "--set", &key], AWAY);
    let distrusts = format!("fleet.ca={}", other.path("ca.pem"));
    let [certificate, key] = shows((&own, &own_key));
    refused(&nats, &["--set", &distrusts, "--set", &certificate, "--set", &key], AWAY);
    members[0].knows(2);
}

/// Who signs accounts, and what is signed: the tokens of `nsc`, made here.
struct Operator(KeyPair);

fn token(signer: &KeyPair, subject: &str, name: &str, nats: &Value) -> String {
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let claims = json!({
        "jti": format!("{name}-{subject}"),
        "iat": 1_700_000_000,
        "iss": signer.public_key(),
        "name": name,
        "sub": subject,
        "nats": nats,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&head), part(&claims));
    let signature = signer.sign(signed.as_bytes()).expect("it has the seed");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

impl Operator {
    fn new() -> Self {
        Self(KeyPair::new_operator())
    }

    fn account(&self, name: &str, has_streams: bool) -> Account {
        let key = KeyPair::new_account();
        let room = if has_streams { -1 } else { 0 };
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
            "conn": -1, "leaf": -1, "mem_storage": room, "disk_storage": room, "streams": -1,
            "consumer": -1,
        });
        let claims = json!({ "type": "account", "version": 2, "limits": limits });
        let token = token(&self.0, &key.public_key(), name, &claims);
        Account { key, token }
    }

    /// The configuration of a server that knows these accounts; the first is the system's.
    fn configuration(&self, accounts: &[&Account]) -> String {
        let claims = json!({
            "type": "operator", "version": 2, "system_account": accounts[0].key.public_key(),
        });
        let own = token(&self.0, &self.0.public_key(), "operator", &claims);
        let known = accounts.iter().map(|it| format!("{}: {}\n", it.key.public_key(), it.token));
        format!(
            "operator: {own}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n{}}}\n",
            accounts[0].key.public_key(),
            known.collect::<String>()
        )
    }
}

struct Account {
    key: KeyPair,
    token: String,
}

impl Account {
    /// A credentials file of a user, who may do what `permissions` say, as an option of a bridge.
    fn user(&self, place: &Path, name: &str, permissions: &Value) -> String {
        let key = KeyPair::new_user();
        let mut claims = json!({
            "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        });
        for side in ["pub", "sub"] {
            claims[side] = permissions[side].clone();
        }
        let token = token(&self.key, &key.public_key(), name, &claims);
        let seed = key.seed().expect("it has one");
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let path = place.join(format!("{name}.creds"));
        fs::write(&path, text).expect("a file");
        format!("fleet.credentials={}", path.display())
    }
}

/// What the configuration that we give to operators allows one of its users.
fn permissions_of(user: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/nats-server.conf");
    let text = fs::read_to_string(path).expect("the configuration");
    let (_, own) = text.split_once(&format!("user: {user}\n")).expect("the user");
    let own = own.split("user: ").next().expect("a part");
    let (publish, subscribe) = own.split_once("subscribe:").expect("both sides");
    let quoted = |text: &str| {
        let plain = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let plain: String = plain.collect();
        plain.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let (publish, subscribe) = (quoted(publish), quoted(subscribe));
    assert!(publish.len() > 20 && subscribe.len() == 2, "{publish:?} {subscribe:?}");
    json!({ "pub": { "allow": publish }, "sub": { "allow": subscribe } })
}

fn credentials(option: &str) -> [&str; 3] {
    ["--dev", "--set", option]
}

#[test]
fn bridges_with_credentials_files_are_a_fleet_and_others_are_refused() {
    let place = TempDir::new().expect("a directory");
    let (operator, stranger) = (Operator::new(), Operator::new());
    let (system, account) = (operator.account("system", false), operator.account("fleet", true));
    let configuration = operator.configuration(&[&system, &account]);
    let Some(nats) = Nats::start_with("nats", &configuration) else { return };
    // Each is what `dist/nats-server.conf` makes of a user of its name.
    let own = |name: &str| account.user(place.path(), name, &permissions_of(name));
    let (first, second) = (own("host1"), own("host2"));
    let members = [
        Member::join(&nats, "host1", &credentials(&first)),
        Member::join(&nats, "host2", &credentials(&second)),
    ];
    for member in &members {
        member.knows(2);
    }
    members[0].client.post("/v1/sandboxes", &json!({ "name": "one" })).expect(201);
    let run = json!({ "argv": ["echo", "hello"] });
    for member in &members {
        let ran = member.client.post("/v1/sandboxes/default/one/exec", &run).expect(200).json();
        assert_eq!(ran["stdout"], "hello\n");
    }
    // With the file of another host it does not become a host of its own name.
    refused(&nats, &["--set", &own("host3")], "no lease in its fleet");
    // None at all, one that is not there, and one of somebody else's account.
    refused(&nats, &[], AWAY);
    let missing = "/nonexistent/host.creds";
    refused(&nats, &["--set", &format!("fleet.credentials={missing}")], missing);
    let foreign = stranger.account("fleet", true).user(place.path(), "foreign", &json!({}));
    refused(&nats, &["--set", &foreign], AWAY);
    members[0].knows(2);
}

#[test]
fn fleets_in_two_accounts_of_one_nats_know_nothing_of_each_other() {
    let place = TempDir::new().expect("a directory");
    let operator = Operator::new();
    let system = operator.account("system", false);
    let accounts = [operator.account("red", true), operator.account("blue", true)];
    let configuration = operator.configuration(&[&system, &accounts[0], &accounts[1]]);
    let Some(nats) = Nats::start_with("nats", &configuration) else { return };
    // Both have a node of the same name, and a sandbox of the same name.
    let members = ["red", "blue"].map(|name| {
        let at = usize::from(name == "blue");
        let option = accounts[at].user(place.path(), name, &json!({}));
        Member::join(&nats, "n1", &credentials(&option))
    });
    for (member, word) in members.iter().zip(["red", "blue"]) {
        let made = json!({ "name": "same", "env": { "WORD": word } });
        member.client.post("/v1/sandboxes", &made).expect(201);
        member.client.post("/v1/sandboxes", &json!({ "name": word })).expect(201);
    }
    for (member, word, other) in [(&members[0], "red", "blue"), (&members[1], "blue", "red")] {
        member.knows(1);
        let run = json!({ "argv": ["sh", "-c", "echo $WORD"] });
        let ran = member.client.post("/v1/sandboxes/default/same/exec", &run).expect(200).json();
        assert_eq!(ran["stdout"], format!("{word}\n"), "{ran}");
        member.client.get(&format!("/v1/sandboxes/default/{other}")).expect(404);
        let all = member.client.get("/v1/sandboxes?all_nodes=true").expect(200).json();
        assert_eq!(all["sandboxes"].as_array().map(Vec::len), Some(2), "{all}");
    }
}
