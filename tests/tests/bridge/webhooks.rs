//! Webhooks: what a receiver gets, in which order, and what becomes of it when it fails, hangs, closes or
//! leads elsewhere.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tests::http::Client;
use tests::receiver::{FAILS, Mode, OK, Receiver, Request};
use tests::server::Server;
use tests::{Burrow, PATIENCE, eventually, have_or_skip};

const ALL: &str = "/v1/sandboxes";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The offsets that a receiver has taken, each once.
fn offsets(receiver: &Receiver) -> Vec<u64> {
    let taken = receiver.taken();
    let offset = |one: &Request| one.json()["offset"].as_u64().expect("a number");
    let mut found: Vec<u64> = taken.iter().map(offset).collect();
    found.dedup();
    found
}

/// A server with these webhooks: a name, a port, and what else their tables have.
fn serve(hooks: &[(&str, u16, &str)]) -> Server {
    let burrow = Burrow::new();
    let (config, secret) = (burrow.scratch().join("burrow.toml"), burrow.scratch().join("secret"));
    fs::write(&secret, SECRET).expect("it can be written");
    let mut text =
        format!("[secrets.hook]\nfile = {:?}\nnamespaces = []\n", secret.display().to_string());
    for (name, port, more) in hooks {
        let _ = write!(
            text,
            "[webhooks.{name}]\nurl = \"http://127.0.0.1:{port}/in?a=b\"\nsecret = \"hook\"\n\
             namespaces = \"*\"\n{more}\n"
        );
    }
    fs::write(&config, text).expect("it can be written");
    Server::start_in(burrow, &["--dev", "--config", config.to_str().expect("it is there")])
}

fn live(client: &Client, name: &str) {
    client.post(ALL, &json!({ "name": name })).expect(201);
    client.delete(&format!("{ALL}/default/{name}?force=true")).expect(200);
}

fn dead_letters(server: &Server) -> Vec<Value> {
    let printed = server.ok(&["events", "--dead-letters", "--json"]);
    printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The signature as Python's library has it.
fn computed(request: &Request) -> String {
    let program = "import sys,hmac,hashlib,base64; key=base64.b64decode(sys.argv[1]); \
                   print('v1,'+base64.b64encode(hmac.new(key, sys.stdin.buffer.read(), hashlib.sha256).digest()).decode())";
    let mut python = Command::new("python3")
        .args(["-c", program, SECRET.trim_start_matches("whsec_")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is there");
    let (id, time) = (request.header("webhook-id"), request.header("webhook-timestamp"));
    let text = format!("{id}.{time}.{}", request.body);
    python
        .stdin
        .take()
        .expect("it is there")
        .write_all(text.as_bytes())
        .expect("it can be written");
    let output = python.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout).expect("it is there").trim_end().to_owned()
}

#[test]
fn each_request_is_signed_and_comes_in_order() {
    if !have_or_skip("python3") {
        return;
    }
    let receiver = Receiver::start(OK);
    let some = Receiver::start(OK);
    let server = serve(&[
        ("all", receiver.port, "allow_private = true"),
        ("some", some.port, "allow_private = true\nkinds = [\"exited\"]"),
    ]);
    let client = Client::new(server.url());
    for name in ["a", "b", "c"] {
        live(&client, name);
    }
    eventually("all events have come", || receiver.taken().len() >= 12);
    let events = client.get("/v1/events?limit=1000").expect(200).json()["events"].clone();
    let taken = receiver.taken();
    let bodies: Vec<_> = taken.iter().map(Request::json).collect();
    assert_eq!(Value::from(bodies), events);
    for (at, request) in taken.iter().enumerate() {
        assert_eq!(request.target, "/in?a=b");
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("webhook-id"), format!("default/{at}"));
        assert_eq!(request.header("webhook-signature"), computed(request));
    }
    eventually("the chosen ones have come", || some.taken().len() == 3);
    assert!(some.taken().iter().all(|request| request.json()["kind"] == "exited"));
    assert!(dead_letters(&server).is_empty());
    let log = fs::read_to_string(server.log()).unwrap();
    assert!(!log.contains("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "{log}");
}

#[test]
fn a_receiver_that_fails_gets_it_again_and_then_it_is_a_dead_letter() {
    let receiver = Receiver::start(FAILS);
    let server = serve(&[("one", receiver.port, "allow_private = true\nattempts = 2")]);
    let client = Client::new(server.url());
    client.post(ALL, &json!({ "name": "work" })).expect(201);
    eventually("the first is given up", || !dead_letters(&server).is_empty());
    receiver.set(OK);
    client.delete(&format!("{ALL}/default/work?force=true")).expect(200);
    eventually("the last has come", || offsets(&receiver).last() == Some(&3));
    let letters = dead_letters(&server);
    let first = &letters[0];
    assert_eq!((&first["hook"], &first["attempts"]), (&json!("one"), &json!(2)), "{first}");
    assert_eq!(first["error"], "its answer is status 500");
    assert_eq!(first["event"]["kind"], "created");
    // Each is there once: delivered or dead.
    let mut all = offsets(&receiver);
    all.extend(letters.iter().map(|letter| letter["event"]["offset"].as_u64().unwrap()));
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
    let table = server.ok(&["events", "--dead-letters"]);
    assert!(table.contains("default/0 created work") && table.contains("status 500"), "{table}");
    let log = fs::read_to_string(server.log()).unwrap();
    assert!(log.contains("webhook one: its answer is status 500"), "{log}");
    assert!(log.contains("webhook one: it is delivered to again"), "{log}");
}

#[test]
fn a_receiver_that_hangs_delays_nobody_and_gets_everything_later() {
    let (hangs, closes, good) =
        (Receiver::start(Mode::Hang), Receiver::start(Mode::Close), Receiver::start(OK));
    let more = "allow_private = true\nattempts = 100";
    let server = serve(&[
        ("hangs", hangs.port, more),
        ("closes", closes.port, more),
        ("good", good.port, more),
    ]);
    let client = Client::new(server.url());
    let begun = Instant::now();
    for number in 0..5 {
        live(&client, &format!("s{number}"));
    }
    let all: Vec<u64> = (0..20).collect();
    eventually("the good one has all", || offsets(&good) == all);
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!((hangs.came(), offsets(&hangs)), (1, Vec::new()));
    assert!(closes.came() > 0 && offsets(&closes).is_empty());
    hangs.set(OK);
    closes.set(OK);
    eventually("the others have all", || offsets(&hangs) == all && offsets(&closes) == all);
    assert!(dead_letters(&server).is_empty());
}

#[test]
fn a_killed_bridge_goes_on_after_the_last_event_that_was_taken() {
    let receiver = Receiver::start(OK);
    let mut server = serve(&[("one", receiver.port, "allow_private = true\nattempts = 100")]);
    for round in 0..3 {
        let client = Client::new(server.url());
        for number in 0..4 {
            live(&client, &format!("s{round}-{number}"));
        }
        if round == 1 {
            // What is not taken before the kill comes after it.
            receiver.set(Mode::Close);
        }
        server.kill_and_serve_again();
        receiver.set(OK);
    }
    let client = Client::new(server.url());
    let events = client.get("/v1/events?limit=1000").expect(200).json();
    let expected: Vec<u64> = (0..events["next"].as_u64().unwrap()).collect();
    eventually("all have come", || offsets(&receiver).last() == expected.last());
    // In order; one that came twice came twice in a row.
    assert_eq!(offsets(&receiver), expected);
}

#[test]
fn a_hook_reaches_no_address_of_the_host_and_follows_no_redirect() {
    let (inside, elsewhere) = (Receiver::start(OK), Receiver::start(OK));
    let answer = format!(
        "HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{}/\r\ncontent-length: 0\r\n\r\n",
        elsewhere.port
    );
    let leads = Receiver::start(Mode::Answer(answer.leak()));
    let server = serve(&[
        ("inside", inside.port, "attempts = 1"),
        ("leads", leads.port, "attempts = 1\nallow_private = true"),
    ]);
    let client = Client::new(server.url());
    live(&client, "work");
    eventually("both have given up", || dead_letters(&server).len() == 8);
    let letters = dead_letters(&server);
    let error = |hook: &str| {
        let of = letters.iter().find(|letter| letter["hook"] == hook).unwrap();
        of["error"].as_str().unwrap().to_owned()
    };
    assert!(error("inside").contains("is not on the public internet"), "{}", error("inside"));
    assert_eq!(error("leads"), "its answer is status 307, and redirects are not followed");
    assert_eq!((inside.came(), elsewhere.came(), leads.came()), (0, 0, 4));
}

#[test]
fn a_hook_that_cannot_be_right_is_refused_with_the_key() {
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    let good = "url = \"https://example.org/a\"\nsecret = \"s\"\nnamespaces = \"*\"\n";
    for (table, words) in [
        (good.replace("https://example.org/a", "ftp://example.org"), "is not a URL"),
        (good.replace("secret = \"s\"", "secret = \"t\""), "there is no [secrets.t]"),
        (good.replace("secret = \"s\"\n", ""), "secret is missing"),
        (good.replace("namespaces = \"*\"\n", ""), "namespaces is missing"),
        (format!("{good}kinds = [\"born\"]\n"), "not a kind of event"),
        (format!("{good}attempts = 0\n"), "out of range"),
        (format!("{good}kind = []\n"), "did you mean \"kinds\""),
    ] {
        let text = format!("[secrets.s]\nenv = \"S\"\nnamespaces = []\n[webhooks.one]\n{table}");
        fs::write(&config, text).unwrap();
        let checked =
            burrow.run(&["serve", "--check-config", "--config", config.to_str().unwrap()]);
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert!(!checked.status.success() && stderr.contains(words), "{table}: {stderr}");
    }
}
