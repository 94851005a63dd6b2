//! Wall clocks of hosts that are set while bridges run.

use std::time::{Duration, Instant};

use host::instant::now_ms;
use serde_json::{Value, json};
use tests::fleet::{Member, Nats};
use tests::wall_clock::{WallClock, library_or_skip, sweep_after};
use tests::{Burrow, eventually};

const KEPT: &str = "/v1/sandboxes/default/kept";
const HOUR_S: i64 = 3_600;

/// How many seconds a bridge's wall clock is after this machine's, as the time of a new sandbox shows it.
fn seconds_ahead(member: &Member) -> i64 {
    member.start(&["--name", "moment"]);
    let shown = member.server.ok(&["inspect", "--json", "moment"]);
    let record: Value = serde_json::from_str(&shown).expect("a record");
    member.server.ok(&["rm", "--force", "moment"]);
    let at_ms = record["created_at_ms"].as_i64().expect("a time");
    (at_ms - now_ms() as i64) / 1_000
}

/// Sets a clock, and waits until the bridge goes by it.
fn set(clock: &WallClock, member: &Member, seconds: i64) {
    clock.set(seconds);
    eventually("the bridge has that time", || (seconds_ahead(member) - seconds).abs() < 60);
}

#[test]
fn a_wall_clock_that_is_set_ends_nothing_and_pauses_nothing() {
    let (Some(nats), Some(library)) = (Nats::start(), library_or_skip()) else { return };
    let burrow = Burrow::new();
    let clock = WallClock::new(&library, burrow.scratch().join("clock"));
    let burrow = clock
        .variables()
        .into_iter()
        .fold(burrow, |burrow, (name, value)| burrow.variable(name, &value));
    let mut member = Member::join_in(burrow, &nats, "n1", &["--dev"]);
    let other = Member::open(&nats, "n2");
    member.knows(2);
    member.start(&["--name", "kept", "--ttl", "10m"]);
    let run = json!({ "argv": ["true"] });
    for seconds in [3 * HOUR_S, -3 * HOUR_S] {
        set(&clock, &member, seconds);
        // Longer than its lease, which is three seconds.
        let deadline = Instant::now() + Duration::from_secs(4);
        eventually("a lease is over", || Instant::now() > deadline);
        member.client.post(&format!("{KEPT}/exec"), &run).expect(200);
        // Another node cannot tell a call of this moment from an old one.
        let refused = other.client.get(KEPT).expect(503).json();
        let why = refused["message"].as_str().unwrap_or_default().to_owned();
        assert!(why.contains("clock"), "{refused}");
        // A bridge that finds the sandbox has no other time to go by.
        let pid = member.server.daemon_pid();
        member.server.kill_and_serve_again();
        sweep_after(pid.as_raw() as u32);
        member.client = tests::http::Client::new(member.server.url());
        eventually("it is in the fleet again", || member.nodes()[0]["trouble"].is_null());
        member.client.post(&format!("{KEPT}/exec"), &run).expect(200);
    }
    let figures = member.client.get("/metrics").expect(200).text();
    for figure in ["burrow_fleet_holds_total 0", "burrow_fleet_names_lost_total 0"] {
        assert!(figures.contains(figure), "{figures}");
    }
    set(&clock, &member, 0);
    eventually("the other node reaches it again", || other.client.get(KEPT).status == 200);
    let left_ms = other.client.get(KEPT).expect(200).json()["expires_at_ms"].as_u64();
    let left_ms = left_ms.expect("it has a time to live").saturating_sub(now_ms());
    assert!((400_000..=600_000).contains(&left_ms), "{left_ms} ms of ten minutes are left");
}
