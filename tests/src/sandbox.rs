//! A sandbox driven through the bridge's library: on the process machine, or on the one that
//! `BURROW_TEST_MACHINE` names, with the image that `BURROW_TEST_IMAGE` does.

use agent_client::guest::Guest;
use agent_client::program::{Ended, collect};
use host::paths::Paths;
use protocol::requests::{Program, SpoolSpec, Start, Stdio};
use protocol::{SessionId, Text};
use sandbox::{OneShot, Spec, one_shot};

use crate::Burrow;

/// A running sandbox for one test.
pub struct Sandbox {
    pub guest: Guest,
    machine: OneShot,
    next: u64,
    // Its directories are removed after the machine.
    _burrow: Burrow,
}

/// A program's output, and how it ended.
pub struct Ran {
    pub finished: Ended,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Sandbox {
    /// # Panics
    /// When there can be no sandbox here.
    pub async fn start() -> Self {
        Self::start_as(|_| {}).await
    }

    /// The same, made differently.
    ///
    /// # Panics
    /// When there can be no sandbox here.
    pub async fn start_as(change: impl FnOnce(&mut Spec)) -> Self {
        let burrow = Burrow::new();
        let paths = Paths { runtime: burrow.runtime(), state: burrow.state() };
        paths.prepare().expect("directories");
        let mut spec = Spec::new("test-box".parse().expect("a name"));
        if let Ok(machine) = std::env::var("BURROW_TEST_MACHINE") {
            spec.machine = Some(machine.parse().expect("a kind of machine"));
            spec.image = std::env::var("BURROW_TEST_IMAGE").ok();
        }
        change(&mut spec);
        let machine = one_shot(&paths, &spec).await.expect("a sandbox");
        Self { guest: machine.guest().clone(), machine, next: 0, _burrow: burrow }
    }

    /// A start of `argv` under a fresh session id.
    pub fn command(&mut self, argv: &[&str]) -> Start {
        self.next += 1;
        start(&format!("s{}", self.next), argv)
    }

    /// Runs a program to its end.
    pub async fn run(&mut self, argv: &[&str]) -> Ran {
        let start = self.command(argv);
        self.run_start(&start, &[]).await
    }

    /// # Panics
    /// When the link breaks.
    pub async fn run_start(&mut self, start: &Start, input: &[u8]) -> Ran {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let finished = collect(
            &self.guest,
            start,
            input,
            |bytes| stdout.extend_from_slice(bytes),
            |bytes| stderr.extend_from_slice(bytes),
        )
        .await
        .expect("the program is run");
        Ran { finished, stdout, stderr }
    }

    pub async fn end(self) {
        let Self { machine, guest, .. } = self;
        drop(guest);
        machine.end().await;
    }
}

/// A start of `argv` on pipes without input.
///
/// # Panics
/// When `session` is no session id.
pub fn start(session: &str, argv: &[&str]) -> Start {
    Start {
        session: session.parse::<SessionId>().expect("a session id"),
        program: Program::Argv { argv: argv.iter().map(|word| Text::from(*word)).collect() },
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
