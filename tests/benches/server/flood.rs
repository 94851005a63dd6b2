//! A hundred megabytes of output over HTTP, compared with a raw copy, and their cost for the
//! bridge.

use std::io::Read;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::http::{Client, Incoming};
use tests::{resident_bytes, resident_bytes_peak};

use super::super::{FLOOD_BYTES, Floor, MIB, Report, median, timed};
use super::{BOX, RPC, command, serving};

/// Floods of each kind of which the median is taken.
const FLOODS: usize = 5;
/// How much is read at once.
const READ_BYTES: usize = 128 * 1024;
/// How long the bridge may keep what a flood took, and how much of it in the end.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);
const KEPT_MIB_MAX: f64 = 16.0;
/// Where the text is that is shown, and as many zeros, which are base64 in JSON.
const TEXT: &str = "/tmp/text";
const ZEROS: &str = "/tmp/zeros";

pub fn figures(report: &mut Report) {
    flood(report, "100 MB of stdout by `exec`, NDJSON", 5.0, 16.0, |client, _| shown(client, TEXT));
    zeros(report);
    flood(report, "100 MB of two sessions' stdout, octets", 8.0, 16.0, |client, number| {
        for half in 0..2 {
            followed(client, &format!("flood-{number}-{half}"), FLOOD_BYTES / 2);
        }
    });
    // Not a stream: the answer is made in memory, up to a cap that this is beyond. What a client's parser makes of
    // it is the client's.
    flood(report, "the same by JSON-RPC, to its cap", 20.0, 200.0, |client, _| {
        let answer = client.post(RPC, &command("cat", &[TEXT])).expect(200);
        assert!(answer.body.ends_with(b"\"truncated\":true}}"), "it is cut short");
    });
}

/// Follows a session of so many bytes. A log does not wait for its readers, and holds 64 MiB for those that are behind.
fn followed(client: &Client, session: &str, bytes: usize) {
    let body = json!({ "argv": ["head", "-c", bytes.to_string(), TEXT], "session": session });
    let _ = client.post(&format!("{BOX}/sessions"), &body).expect(201);
    let path = format!("{BOX}/sessions/{session}/output?channel=stdout&follow=true");
    let headers = [("accept", "application/octet-stream")];
    assert_eq!(drain(client.open("GET", &path, &headers, &[])), bytes);
    assert!(client.delete(&format!("{BOX}/sessions/{session}")).status < 300);
}

/// Zeros beside text, by lines of JSON.
fn zeros(report: &mut Report) {
    let (_server, client) = serving();
    written(&client);
    let (mut text, mut zeros) = (Vec::new(), Vec::new());
    for _ in 0..FLOODS {
        text.push(timed(|| shown(&client, TEXT)));
        zeros.push(timed(|| shown(&client, ZEROS)));
    }
    report.ratio("100 MB of NULs by NDJSON, beside text", median(zeros), median(text), 2.0);
}

/// Shows a file of the sandbox by `exec`.
fn shown(client: &Client, file: &str) {
    let headers = [("accept", "application/x-ndjson"), ("content-type", "application/json")];
    let body = json!({ "argv": ["cat", file] }).to_string();
    let incoming = client.open("POST", &format!("{BOX}/exec"), &headers, body.as_bytes());
    assert!(drain(incoming) > FLOOD_BYTES);
}

/// Writes what is shown.
fn written(client: &Client) {
    let script = format!(
        "yes 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ- | head -c {FLOOD_BYTES} >{TEXT}
        head -c {FLOOD_BYTES} /dev/zero >{ZEROS}"
    );
    let made = client.post(&format!("{BOX}/shell"), &json!({ "script": script })).expect(200);
    assert_eq!(made.json()["exit_code"], 0, "{}", made.text());
}

fn flood(
    report: &mut Report,
    name: &str,
    target: f64,
    growth_mib_max: f64,
    one: impl Fn(&Client, usize),
) {
    // A new server, because a process's peak memory never falls.
    let (server, client) = serving();
    written(&client);
    let mut floor = Floor::start();
    let (mut floors, mut floods) = (Vec::new(), Vec::new());
    let before = resident_bytes(server.daemon_pid()).expect("it runs");
    for number in 0..FLOODS {
        floors.push(timed(|| floor.flood()));
        floods.push(timed(|| one(&client, number)));
    }
    let (floor, flood) = (median(floors), median(floods));
    report.ratio(name, flood, floor, target);
    let speed = FLOOD_BYTES as f64 / MIB / flood.as_secs_f64();
    println!("{:<52} {speed:>7.0} MB/s", "  which is");
    let peak = resident_bytes_peak(server.daemon_pid()).expect("it runs");
    let growth = peak.saturating_sub(before) as f64 / MIB;
    report.bound("  the bridge's growth", growth, "MiB", growth_mib_max);
    if growth > KEPT_MIB_MAX {
        let growth =
            || resident_bytes(server.daemon_pid()).expect("it runs").saturating_sub(before);
        let (left, after) = given_back(|| growth() as f64 / MIB);
        report.bound("  what is left of it within a minute", left, "MiB", KEPT_MIB_MAX);
        println!("{:<52} {:>9.0} s", "  after", after.as_secs_f64());
    }
}

/// The growth when it is small enough, or when the time is up.
fn given_back(growth: impl Fn() -> f64) -> (f64, Duration) {
    let begun = Instant::now();
    while growth() > KEPT_MIB_MAX && begun.elapsed() < GIVEN_BACK_WITHIN {
        // Between two looks.
        sleep(Duration::from_millis(250));
    }
    (growth(), begun.elapsed())
}

/// The size of a body.
fn drain(mut incoming: Incoming<'_>) -> usize {
    assert_eq!(incoming.status, 200);
    let mut buffer = vec![0; READ_BYTES];
    let mut total = 0;
    loop {
        match incoming.read(&mut buffer).expect("it goes on") {
            0 => return total,
            count => total += count,
        }
    }
}
