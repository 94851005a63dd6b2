//! What a claim of a pooled sandbox costs the bridge: its claimer waits for each of these calls.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use host::places;
use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::trace::{Threads, Trace};
use tests::{eventually, have_or_skip};

/// Files that are looked at for a claim: those of the system that are hidden, and the targets of what is hidden.
const LOOKS_MAX: usize = 70;
/// The same for each home: its state, and what is there.
const LOOKS_PER_HOME_MAX: usize = 4;
/// The same for a home that was changed a moment ago: all names that could be there.
const LOOKS_PER_CHANGED_HOME_MAX: usize = 40;
/// How long ago that is at most, with a margin for a slow host.
const CHANGED_S: u64 = 10;

fn looks_max(home: impl AsRef<Path>) -> usize {
    let changed_s = fs::metadata(home).map_or(0, |found| found.ctime().unsigned_abs());
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let is_changed = now_s < changed_s + CHANGED_S;
    if is_changed { LOOKS_PER_CHANGED_HOME_MAX } else { LOOKS_PER_HOME_MAX }
}

#[test]
fn a_claim_looks_at_few_files_however_many_homes_the_host_has() {
    if !have_or_skip("strace") {
        return;
    }
    let server = Server::start(&["--dev", "--set", "pool.entries=/=2"]);
    let shelf = || {
        let shelves: Value = serde_json::from_str(&server.ok(&["pool", "--json"])).unwrap();
        shelves[0].clone()
    };
    eventually("the pool is full", || shelf()["ready"] == 2);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "first" })).expect(201);
    let Some(trace) = Trace::of(server.daemon_pid(), Threads::All) else { return };
    client.post("/v1/sandboxes", &json!({ "name": "second" })).expect(201);
    let calls = trace.end();
    assert_eq!(shelf()["claimed"], 2, "a sandbox came from no pool");
    // The pool may look at another machine meanwhile; the claim is what one thread does.
    let thread = |call: &str| call.split(' ').next().map(str::to_owned);
    let claiming = calls.iter().find(|call| call.contains("claimed.json")).expect("a claim");
    let claiming = thread(claiming);
    let names = ["statx(", "newfstatat(", "stat(", "readlink("];
    let is_look = |call: &&String| names.iter().any(|name| call.contains(name));
    let own = calls.iter().filter(|call| thread(call) == claiming);
    let looks: Vec<_> = own.filter(is_look).collect();
    let max = LOOKS_MAX + places::homes().iter().map(looks_max).sum::<usize>();
    assert!(looks.len() <= max, "{} of at most {max}:\n{looks:#?}", looks.len());
}
