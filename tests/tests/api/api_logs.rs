//! Logs over HTTP: pages, filters, following, and what is left when the sandbox is over.

use std::process::Output;

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::eventually;
use tests::http::{Client, SocketMessage};
use tests::server::Server;

struct LogServer {
    server: Server,
    client: Client,
}

impl LogServer {
    fn new() -> Self {
        let (server, client) = open();
        Self { server, client }
    }

    /// Runs a script in a session that is recorded.
    fn exec(&self, script: &str) -> Output {
        let ran = self.server.run(&["exec", "box", "--", "sh", "-c", script]);
        assert!(ran.status.success(), "{ran:?}");
        ran
    }

    fn page(&self, query: &str) -> Value {
        self.client.get(&format!("{BOX}/logs?{query}")).expect(200).json()
    }

    /// Everything, page by page.
    fn all(&self, query: &str) -> Vec<Value> {
        let mut page = self.page(query);
        let mut entries = entries(&page);
        while let Some(next) = page["next"].as_str() {
            page = self.page(&format!("{query}&after={next}"));
            entries.extend(self::entries(&page));
        }
        entries
    }

    /// Waits until the log tells of so many ends of sessions.
    fn settle(&self, exits: usize) {
        eventually("the sessions are recorded", || {
            let all = self.all("limit=10000");
            all.iter().filter(|entry| entry["type"] == "exited").count() >= exits
        });
    }
}

fn entries(page: &Value) -> Vec<Value> {
    page["entries"].as_array().expect("a list").clone()
}

fn text(entries: &[Value]) -> String {
    let output = entries.iter().filter(|entry| entry["type"] == "output");
    output.map(|entry| entry["text"].as_str().expect("text")).collect()
}

#[test]
fn a_log_is_read_in_pages_that_miss_nothing() {
    let place = LogServer::new();
    place.exec("for i in $(seq 1 200); do echo line $i; sleep 0.001; done; echo oops >&2");
    place.settle(1);
    let whole = entries(&place.page("limit=10000"));
    assert_eq!(whole.first().map(|entry| entry["type"].clone()), Some(json!("started")));
    let expected = (1..=200).map(|i| format!("line {i}\n")).collect::<Vec<_>>().concat();
    let stdout: Vec<Value> =
        whole.iter().filter(|entry| entry["stream"] == "stdout").cloned().collect();
    assert_eq!(text(&stdout), expected);
    assert_eq!(place.all("limit=3"), whole);
    assert_eq!(entries(&place.page("stream=stderr"))[1]["text"], "oops\n");
    let last = whole.last().expect("entries");
    assert_eq!((&last["type"], &last["exit"]["exit_code"]), (&json!("exited"), &json!(0)));
    // After the last entry there is nothing yet, and the place stays good.
    let place_behind = last["place"].as_str().expect("a place");
    assert_eq!(place.page(&format!("after={place_behind}")), json!({ "entries": [] }));
    place.exec("echo more");
    place.settle(2);
    assert_eq!(text(&entries(&place.page(&format!("after={place_behind}")))), "more\n");
}

#[test]
fn the_last_lines_a_time_and_a_session_are_found() {
    let place = LogServer::new();
    place.exec("seq 1 50");
    place.settle(1);
    assert_eq!(text(&entries(&place.page("tail=2"))), "49\n50\n");
    assert_eq!(text(&entries(&place.page("tail=0"))), "");
    let all = place.all("limit=1000");
    let last_ms = all.last().expect("entries")["at_ms"].as_u64().expect("a time");
    let session = all[0]["session"].as_str().expect("a session").to_owned();
    // `since_ms` tells entries apart by their time: the next one must be later by more than 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(20));
    place.exec("echo later");
    place.settle(2);
    let since = last_ms + 10;
    assert_eq!(text(&entries(&place.page(&format!("since_ms={since}")))), "later\n");
    assert!(!text(&entries(&place.page(&format!("until_ms={since}")))).contains("later"));
    assert!(text(&entries(&place.page(&format!("session={session}")))).ends_with("50\n"));
    let unknown = place.client.get(&format!("{BOX}/logs?session=nobody"));
    assert_eq!(unknown.expect(404).code(), "not_found");
    for query in ["tail=1&after=1-1-1", "after=x", "limit=0", "limit=10001", "stream=x", "tail=-1"]
    {
        let refused = place.client.get(&format!("{BOX}/logs?{query}"));
        assert_eq!(refused.expect(400).code(), "invalid", "{query}");
    }
    // A place that no entry has named is no fault of the server.
    for after in ["9999999999-17039360-4611686018427387904", "1-3-0", "0-0-0"] {
        place.page(&format!("after={after}"));
    }
}

#[test]
fn sessions_that_come_and_go_are_reported_in_their_order() {
    const RUNS: usize = 30;
    let place = LogServer::new();
    let shell = format!("{BOX}/shell");
    for number in 0..RUNS {
        let body = json!({
            "script": format!("echo {number}"), "session": format!("s{number}"),
            "on_disconnect": "detach",
        });
        place.client.post(&shell, &body).expect(200);
        // The recorder may hear of two at once, and reads them side by side.
        place.settle(number + 1);
    }
    let answer = text(&place.all("limit=10000"));
    let numbers: Vec<String> = (0..RUNS).map(|number| number.to_string()).collect();
    assert_eq!(answer.lines().collect::<Vec<_>>(), numbers);
}

#[test]
fn bytes_that_are_no_text_are_there_as_they_are() {
    let place = LogServer::new();
    place.exec(r"printf '\377\000\001'");
    place.settle(1);
    let output = place.all("limit=10").into_iter().find(|entry| entry["type"] == "output");
    assert_eq!(output.expect("output")["base64"], "/wAB");
}

#[test]
fn a_log_is_followed_to_the_end_of_its_sandbox_and_read_after_it() {
    let place = LogServer::new();
    place.exec("echo before");
    let mut lines = place.client.lines(&format!("{BOX}/logs?follow=true"), None);
    let mut socket = place.client.websocket(&format!("{BOX}/logs?follow=true&stream=stdout"), &[]);
    assert_eq!(lines.next().expect("an entry")["type"], "started");
    place.exec("echo after");
    place.settle(2);
    place.client.post(&format!("{BOX}/stop"), &json!({})).expect(200);
    let rest: Vec<Value> = lines.collect();
    assert_eq!(text(&rest), "before\nafter\n");
    assert_eq!(rest.last().expect("entries")["type"], "closed");
    let mut bytes = Vec::new();
    loop {
        match socket.hear() {
            SocketMessage::Value(value) => bytes.push(value),
            output => {
                assert_eq!(output, SocketMessage::Closed(Some(1000)));
                break;
            }
        }
    }
    assert_eq!(text(&bytes), "before\nafter\n");
    assert_eq!(text(&place.all("limit=2")), "before\nafter\n");
    let lines: Vec<Value> = place.client.lines(&format!("{BOX}/logs"), None).collect();
    assert_eq!(text(&lines), "before\nafter\n");
    place.client.delete(BOX).expect(200);
    assert_eq!(place.client.get(&format!("{BOX}/logs")).expect(404).code(), "not_found");
}

#[test]
fn a_client_that_was_cut_off_goes_on_where_it_was() {
    let place = LogServer::new();
    place.exec("for i in $(seq 1 40); do echo $i; sleep 0.002; done");
    place.settle(1);
    let whole = place.all("limit=10000");
    let mut read: Vec<Value> = Vec::new();
    // Each connection is dropped after three entries.
    while read.len() < whole.len() {
        let after = read.last().map_or(String::new(), |entry| {
            format!("&after={}", entry["place"].as_str().expect("a place"))
        });
        let lines = place.client.lines(&format!("{BOX}/logs?follow=true{after}"), None);
        read.extend(lines.take(3.min(whole.len() - read.len())));
    }
    assert_eq!(read, whole);
}
