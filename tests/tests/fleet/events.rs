//! Events of all nodes: by time, each with its node, from any place on.

use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::fleet::{Member, Nats, open};
use tests::http::Client;
use tests::{PATIENCE, eventually};

const ALL: &str = "/v1/events?all_nodes=true";

/// What happened where, as `node kind sandbox`.
fn shown(event: &Value) -> String {
    let text = |field: &str| event[field].as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", text("node"), text("kind"), text("sandbox"))
}

fn page(member: &Member, query: &str) -> (Vec<Value>, Value) {
    let page = member.client.get(&format!("{ALL}{query}")).expect(200).json();
    let events = page["events"].as_array().expect("a list").clone();
    (events, page)
}

/// Three sandboxes, which begin one after the other at one node and the other.
fn with_three(nats: &Nats) -> Vec<Member> {
    let members = open(nats, 2);
    for (name, at) in [("a", 0), ("b", 1), ("c", 0)] {
        members[at].start(&["--name", name]);
    }
    members
}

const HAPPENED: [&str; 6] =
    ["n1 created a", "n1 ready a", "n2 created b", "n2 ready b", "n1 created c", "n1 ready c"];

#[test]
fn every_node_shows_what_happened_at_all_by_time_and_page_by_page() {
    let Some(nats) = Nats::start() else { return };
    let members = with_three(&nats);
    for member in &members {
        eventually("all of it is written", || page(member, "").0.len() == HAPPENED.len());
        let (events, whole) = page(member, "");
        assert_eq!(events.iter().map(shown).collect::<Vec<_>>(), HAPPENED);
        assert!(whole.get("unanswered").is_none() && whole.get("next").is_none(), "{whole}");
        // The same in pages of two, each from the place of the one before.
        let (mut found, mut resume) = (Vec::new(), String::new());
        for _ in 0..3 {
            let (events, page) = page(member, &format!("&limit=2{resume}"));
            assert_eq!(events.len(), 2);
            found.extend(events.iter().map(shown));
            resume = format!("&resume={}", page["resume"].as_str().expect("a place"));
        }
        assert_eq!(found, HAPPENED);
        let (rest, end) = page(member, &resume);
        assert!(rest.is_empty(), "{rest:?}");
        assert_eq!(format!("&resume={}", end["resume"].as_str().expect("a place")), resume);
        // A filter reaches the other nodes too.
        let (created, _) = page(member, "&kind=created&sandbox=b");
        assert_eq!(created.iter().map(shown).collect::<Vec<_>>(), ["n2 created b"]);
    }
    // A stream without `follow` is the same, and ends.
    let client = &members[1].client;
    let told: Vec<_> = client.lines(ALL, None).map(|event| shown(&event)).collect();
    assert_eq!(told, HAPPENED);
    let refused = |query: &str| client.get(&format!("/v1/events?{query}")).expect(400).text();
    assert!(refused("all_nodes=true&since=1").contains("resume"));
    assert!(refused("resume=n1:1").contains("all_nodes"));
    assert!(refused("all_nodes=true&resume=n1").contains("NODE:OFFSET"));
    let beyond = client.get(&format!("{ALL}&resume=n2:900")).expect(416).json();
    assert_eq!(beyond["code"], "range_not_satisfiable", "{beyond}");
    let (_, elsewhere) = page(&members[0], "&resume=n2:900,n9:4");
    let named: Vec<_> = elsewhere["unanswered"].as_array().expect("a list").clone();
    let names: Vec<_> = named.iter().map(|one| one["node"].as_str().expect("a name")).collect();
    assert_eq!(names, ["n2", "n9"], "{elsewhere}");
    assert!(named[0]["why"].as_str().is_some_and(|why| why.contains("900")), "{elsewhere}");
}

/// The values of a stream, as a thread reads them.
fn follow(member: &Member, query: &str) -> mpsc::Receiver<Value> {
    let (told, heard) = mpsc::channel();
    let (url, path) = (member.server.url().to_owned(), format!("{ALL}&follow=true{query}"));
    thread::spawn(move || {
        let client = Client::new(&url);
        for value in client.lines(&path, None) {
            if told.send(value).is_err() {
                return;
            }
        }
    });
    heard
}

fn next(heard: &mpsc::Receiver<Value>) -> Value {
    heard.recv_timeout(PATIENCE).expect("an event")
}

#[test]
fn who_follows_hears_every_node_and_that_one_is_away_and_nothing_twice() {
    let Some(nats) = Nats::start() else { return };
    let mut members = with_three(&nats);
    eventually("all of it is written", || page(&members[0], "").0.len() == HAPPENED.len());
    let heard = follow(&members[0], "&kind=created");
    let backlog: Vec<_> = (0..3).map(|_| shown(&next(&heard))).collect();
    assert_eq!(backlog, ["n1 created a", "n2 created b", "n1 created c"]);
    members[1].start(&["--name", "d"]);
    assert_eq!(shown(&next(&heard)), "n2 created d");
    members[0].start(&["--name", "e"]);
    assert_eq!(shown(&next(&heard)), "n1 created e");
    // Its bridge goes and comes back: both are events, and its next event comes once.
    members[1].server.kill_and_serve_again();
    let away = next(&heard);
    assert_eq!(shown(&away), "n2 unanswered -");
    assert!(away["cause"].is_string(), "{away}");
    eventually("it is in the fleet again", || {
        members[1].nodes().iter().any(|node| node["here"] == true && node["trouble"].is_null())
    });
    members[1].start(&["--name", "f"]);
    let mut last = shown(&next(&heard));
    while last == "n2 unanswered -" {
        last = shown(&next(&heard));
    }
    assert_eq!(last, "n2 created f");
    // A node that joins later is followed too.
    let third = Member::open(&nats, "n3");
    third.start(&["--name", "g"]);
    assert_eq!(shown(&next(&heard)), "n3 created g");
}

#[test]
fn events_name_a_node_that_does_not_answer() {
    let Some(nats) = Nats::start() else { return };
    let members = with_three(&nats);
    eventually("all of it is written", || page(&members[0], "").0.len() == HAPPENED.len());
    members[1].signal(Signal::SIGKILL);
    let (events, whole) = page(&members[0], "");
    assert_eq!(events.len(), 4, "{whole}");
    assert_eq!(whole["unanswered"][0]["node"], "n2", "{whole}");
    // Its place is kept: what it has is not skipped.
    assert!(!whole["resume"].as_str().expect("a place").contains("n2"), "{whole}");
    let told: Vec<_> = members[0].client.lines(ALL, None).map(|event| shown(&event)).collect();
    assert!(told.contains(&"n2 unanswered -".to_owned()), "{told:?}");
}

#[test]
fn a_key_hears_of_its_own_namespace_of_every_node() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = (Member::join(&nats, "n1", &[]), Member::join(&nats, "n2", &[]));
    first.knows(2);
    second.knows(2);
    second.start(&["--name", "team/theirs"]);
    second.start(&["--name", "other/hidden"]);
    let key = first.server.ok(&["keygen", "--namespace", "team", "--scope", "read"]);
    let team = Client::new(first.server.url()).key(key.trim());
    eventually("it hears", || {
        let page = team.get(ALL).expect(200).json();
        let events = page["events"].as_array().expect("a list");
        assert!(!page.to_string().contains("hidden"), "{page}");
        events.iter().any(|event| shown(event) == "n2 created theirs")
    });
    team.get(&format!("{ALL}&namespace=other")).expect(403);
}

#[test]
fn the_verb_prints_and_follows_events_of_all_nodes() {
    let Some(nats) = Nats::start() else { return };
    let members = with_three(&nats);
    let server = &members[1].server;
    let printed = || {
        let text = server.ok(&["events", "--all-nodes", "--json"]);
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.map(|event: Value| shown(&event)).collect::<Vec<_>>()
    };
    eventually("all of it is written", || printed().len() == HAPPENED.len());
    assert_eq!(printed(), HAPPENED);
    let table = server.ok(&["events", "--all-nodes", "--kind", "created", "b"]);
    assert!(table.starts_with("NODE") && table.contains("n2"), "{table}");
    let mut command = server.command(&["events", "--all-nodes", "-f", "--json"]);
    let mut child = Followed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let stdout = child.0.stdout.take().expect("piped");
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        use std::io::BufRead as _;
        for line in std::io::BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = told.send(serde_json::from_str(&line).expect("JSON"));
        }
    });
    let backlog: Vec<_> = HAPPENED.iter().map(|_| shown(&next(&heard))).collect();
    assert_eq!(backlog, HAPPENED);
    members[0].start(&["--name", "d"]);
    assert_eq!(shown(&next(&heard)), "n1 created d");
    drop(child);
    let output = server.run(&["events", "--all-nodes", "--since", "3"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("give a time"), "{stderr}");
    // A node that does not answer is named, and fails the verb.
    members[0].signal(Signal::SIGKILL);
    let output = server.run(&["events", "--all-nodes"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("n1"), "{stderr}");
}

/// Ends with the test.
struct Followed(Child);

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
