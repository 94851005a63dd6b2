//! What it costs to sample many sandboxes once a second, and to look at all of them at once.
//!
//! A session keeps each agent at one sample a second and uses nothing itself. Beside them are as many processes that are
//! woken as often and only read as many files of the kernel: on a busy host, or one that is a machine itself, that costs
//! a multiple of what it costs elsewhere. The viewer is `top` on a terminal, which
//! follows every sandbox; what it takes more is the CPU time of the agents, the bridge and the viewer together. Slow
//! browsers are connections that ask for a flood and for lists and read nothing.

use std::io::Write;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::tmux::Tmux;

use super::server::idle::{SETTLING, costs, descendants, spent, used};
use super::{Floor, MANY, Report, Target, median, timed};

/// How many sandboxes, for a machine or a build on which so many are too slow.
const SANDBOXES: &str = "BURROW_BENCH_SANDBOXES";
/// How long is looked at: thirty samples.
const LOOK: Duration = Duration::from_secs(30);
const SAMPLED: Target = Target { promise: 6.0, goal: 5.0 };
const SAMPLED_PERCENT_MAX: f64 = 5.0;
const VIEWED_PERCENT_MAX: f64 = 10.0;
/// Connections that read nothing, and questions of which the median is taken.
const SLOW_BROWSERS: usize = 100;
const QUESTIONS: usize = 300;
const FILLED_AFTER: Duration = Duration::from_secs(5);
const DELAYED_MAX: f64 = 1.5;
/// Rows of the terminal: all sandboxes are on the screen.
const MORE_ROWS: u16 = 10;

pub fn figures(report: &mut Report) {
    let many = std::env::var(SANDBOXES).ok();
    let many: usize = many.map_or(MANY, |text| text.parse().expect("a number of sandboxes"));
    let server = Server::dev();
    let client = Client::new(server.url());
    let bridge = server.daemon_pid();
    for number in 0..many {
        let name = format!("box-{number}");
        client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
        let session = json!({ "session": "awake", "argv": ["sleep", "infinity"] });
        client.post(&format!("/v1/sandboxes/default/{name}/sessions"), &session).expect(201);
    }
    let percent = |time: Duration| time.as_secs_f64() / LOOK.as_secs_f64() * 100.0;
    let mut floors: Vec<_> = (0..many).map(|_| Floor::start()).collect();
    for floor in &mut floors {
        floor.ask(b'S');
    }
    let readers: Vec<_> = floors.iter().map(Floor::pid).collect();
    // What the starts have left to do.
    sleep(SETTLING);
    let [agents, own, floor] = costs(LOOK, [&descendants(bridge), &[bridge], &readers]);
    drop(floors);
    let sampled = percent(agents.cpu) + percent(own.cpu);
    assert_sampled(&client);
    let name = format!("{many} sandboxes sampled each second, with the bridge");
    report.ratio(&name, agents.cpu + own.cpu, floor.cpu, SAMPLED);
    println!("{:<52} {:>10.2} %", "  the agents alone, of one CPU", percent(agents.cpu));
    report.bound("  together, of one CPU", sampled, "%", SAMPLED_PERCENT_MAX);
    beside_slow_browsers(report, &client);
    let rows = u16::try_from(many).unwrap_or(u16::MAX - MORE_ROWS) + MORE_ROWS;
    let Some(tmux) = Tmux::of_size(&server, 160, rows) else { return };
    tmux.line("hb top");
    let shown = format!("box-{}", many - 1);
    tmux.wait_for(&shown);
    let viewer = tmux.program();
    let before = used(viewer);
    let begun = Instant::now();
    let (agents, own) = spent(bridge, LOOK);
    let seen = used(viewer).saturating_sub(before);
    let viewer_percent = seen.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    println!("{:<52} {:>10.2} %", "  the viewer itself, of one CPU", viewer_percent);
    let viewed = percent(agents) + percent(own) + viewer_percent;
    report.bound(
        "  what a viewer of all of them takes more",
        viewed - sampled,
        "%",
        VIEWED_PERCENT_MAX,
    );
    tmux.text("q");
}

/// The newest samples are a second apart.
fn assert_sampled(client: &Client) {
    let metrics = client.get("/v1/sandboxes/default/box-0/metrics").expect(200).json();
    let newest = metrics["samples"][0]["number"].as_u64().expect("a number");
    let path = format!("/v1/sandboxes/default/box-0/metrics?since={}", newest.saturating_sub(10));
    let page = client.get(&path).expect(200).json();
    let samples = page["samples"].as_array().expect("a list");
    let time = |sample: Option<&Value>| sample.and_then(|sample| sample["time_ms"].as_u64());
    let (first, last) = (time(samples.first()), time(samples.last()));
    let spread = last.zip(first).map_or(0, |(last, first)| last - first);
    let pauses = samples.len().saturating_sub(1) as u64;
    assert!(pauses > 5 && spread / pauses < 1500, "{pauses} pauses in {spread} ms");
}

/// What everybody else waits for an answer while many read nothing of theirs.
fn beside_slow_browsers(report: &mut Report, client: &Client) {
    let question = || timed(|| drop(client.get("/v1/sandboxes/default/box-1/metrics").expect(200)));
    let usual = || median((0..QUESTIONS).map(|_| question()).collect());
    let alone = usual();
    let session = json!({ "session": "flood", "argv": ["head", "-c", "60M", "/dev/zero"] });
    client.post("/v1/sandboxes/default/box-0/sessions", &session).expect(201);
    let slow: Vec<_> = (0..SLOW_BROWSERS).map(|_| asking_and_not_reading(client)).collect();
    // Until the flood is over, and all that they take without reading is taken.
    sleep(FILLED_AFTER);
    report.ratio("  a question beside a hundred slow browsers", usual(), alone, DELAYED_MAX);
    drop(slow);
}

/// Asks for all the output of a flood, and for lists of all sandboxes.
fn asking_and_not_reading(client: &Client) -> TcpStream {
    const LISTS: usize = 4;
    let mut stream = client.raw();
    let list = "GET /v1/sandboxes HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(LISTS);
    let flood = "GET /v1/sandboxes/default/box-0/sessions/flood/output?follow=true HTTP/1.1\r\n\
                 host: 127.0.0.1\r\naccept: application/x-ndjson\r\n\r\n";
    stream.write_all((list + flood).as_bytes()).expect("the bridge takes requests");
    stream
}
