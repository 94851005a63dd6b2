//! The link and the typed client over it, against an agent that works and a guest that lies.
//!
//! `agent` plays a correct agent, `hostile` a hostile one.

pub(crate) mod agent;
mod cuts;
mod dialling;
mod gathering;
mod homes;
mod hostile;
pub(crate) mod raw;
mod speed;

use std::time::Duration;

use protocol::requests::{Program, SpoolSpec, Start, Stdio};
use protocol::{SessionId, Text};

use super::{Options, Timing};

/// Options with short deadlines, so that a test that fails does so soon.
pub(crate) fn quick() -> Options {
    Options {
        dial_deadline: Duration::from_secs(5),
        welcome_deadline: Duration::from_secs(5),
        // Links that the tests cut at every turn are good ones.
        timing: Timing { steady_after: Duration::ZERO, ..Options::default().timing },
        ..Options::named("test")
    }
}

/// What the test's agent reports of a program: sizes of its outputs and how it ends.
pub(crate) fn start(session: &str, words: &str) -> Start {
    Start {
        session: id(session),
        program: Program::Argv { argv: words.split(' ').map(Text::from).collect() },
        cwd: None,
        env: Vec::new(),
        user: None,
        stdio: Stdio::Pipes { stdin: false },
        deadline_ms: None,
        spool: SpoolSpec::default(),
        holders: Vec::new(),
        tied: false,
        limits: protocol::requests::GroupLimits::default(),
    }
}

pub(crate) fn id(session: &str) -> SessionId {
    session.parse().unwrap()
}

/// Waits for `done`, which must come soon.
pub(crate) async fn until(mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("it happens soon");
}

/// The result of something that must come soon.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes soon")
}
