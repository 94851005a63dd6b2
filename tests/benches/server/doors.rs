//! The first run of code in a sandbox, and warm ones, by the protocol of E2B beside the native API.

use std::time::Duration;

use serde_json::json;
use tests::door::run_code_as_e2b;
use tests::http::Client;
use tests::server::Server;

use super::super::{Report, beside, median, timed};

/// Sandboxes of each kind, each with one first run.
const SANDBOXES: usize = 30;
/// Warm runs in each of them.
const WARM_RUNS: usize = 10;
/// How much longer the first run may take through the door of E2B.
const FIRST_RUN_MAX: f64 = 2.0;

/// The runs of one door.
#[derive(Default)]
struct Runs {
    first: Vec<Duration>,
    warm: Vec<Duration>,
}

pub fn figures(report: &mut Report) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let (mut native, mut e2b) = (Runs::default(), Runs::default());
    // In turns, so that other work of the machine affects both alike.
    for _ in 0..SANDBOXES {
        in_a_new_sandbox(&client, &mut native, |_| {
            let body = json!({ "language": "python", "code": "print(1)" });
            let path = format!("{}/contexts/python/run", super::BOX);
            let ran = client.post(&path, &body).expect(200).json();
            assert_eq!(ran["stdout"], "1\n", "{ran}");
        });
        in_a_new_sandbox(&client, &mut e2b, |id| {
            let ran = run_code_as_e2b(&client, id, "print(1)").expect(200).text();
            assert!(ran.contains(r#""text":"1\n""#), "{ran}");
        });
    }
    let name = "first `run_code` of a sandbox by E2B, native call";
    report.ratio(name, median(e2b.first), median(native.first), FIRST_RUN_MAX);
    beside("warm `run_code` by E2B, beside the native call", median(e2b.warm), median(native.warm));
}

fn in_a_new_sandbox(client: &Client, runs: &mut Runs, run: impl Fn(&str)) {
    super::make(client, "box");
    let id = client.get(super::BOX).expect(200).json()["id"].clone();
    let id = id.as_str().expect("a sandbox has an id");
    // What a start leaves to be done is done.
    let ran = client.post(&format!("{}/exec", super::BOX), &json!({ "argv": ["/bin/true"] }));
    assert_eq!(ran.expect(200).json()["exit_code"], 0);
    runs.first.push(timed(|| run(id)));
    // The second still prepares an interpreter that the first has started.
    run(id);
    runs.warm.extend((0..WARM_RUNS).map(|_| timed(|| run(id))));
    let _ = client.delete(&format!("{}?force=true", super::BOX)).expect(200);
}
