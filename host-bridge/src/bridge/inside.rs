//! What programs do in a sandbox, each as one call that returns the whole result.

use std::borrow::Cow;

use protocol::repl::OpenContext;
use protocol::requests::{self, Start};
use protocol::{ContextName, ExitRecord, Text};

use super::BridgeError;
use agent_client::guest::{Guest, Ran, RunCode, contexts};
use agent_client::program::{OnDrop, Outputs, Program, Unlimited, draw_session};
use sandbox::{Activity, Registry, SandboxRef};

/// How much of each output is kept when all of it is requested at the end: a caller that wants more
/// reads it as it arrives.
pub const WHOLE_OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A sandbox from within. Clones are the same.
#[derive(Clone)]
pub struct Inside {
    guest: Guest,
    /// The default working directory.
    workdir: Option<String>,
    /// Keeps the sandbox from being idle.
    watched: Option<(Registry, SandboxRef)>,
}

/// The output of a program, and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether there was more output than is kept here.
    pub truncated: bool,
    pub record: ExitRecord,
}

impl Output {
    /// Whether the program has exited with 0.
    pub fn is_success(&self) -> bool {
        self.exit_code() == 0
    }

    /// The exit code that a shell would report: 124 after a timeout, 128+n for signal n.
    pub fn exit_code(&self) -> i32 {
        self.record.cause.shell_code()
    }

    /// Bytes that are no text become U+FFFD.
    pub fn stdout_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// Bytes that are no text become U+FFFD.
    pub fn stderr_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }
}

impl Inside {
    pub(super) fn of(guest: Guest, workdir: Option<String>) -> Self {
        Self { guest, workdir, watched: None }
    }

    pub(super) fn of_sandbox(
        guest: Guest,
        workdir: Option<String>,
        registry: Registry,
        which: SandboxRef,
    ) -> Self {
        Self { guest, workdir, watched: Some((registry, which)) }
    }

    /// All else that an agent can be asked.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Runs a program without a shell. A nonzero exit code is no error; a program that cannot be started is.
    /// Dropping the future leaves it running until this process ends.
    pub async fn exec(
        &self,
        argv: impl IntoIterator<Item = impl Into<Text>>,
    ) -> Result<Output, BridgeError> {
        self.carry_out(&self.start(requests::Program::argv(argv))?, &[]).await
    }

    /// Runs a script with the sandbox's shell.
    pub async fn shell(&self, script: impl Into<Text>) -> Result<Output, BridgeError> {
        self.carry_out(&self.start(requests::Program::script(script))?, &[]).await
    }

    /// Runs code in the language's interpreter, which keeps its state between runs. Failing code is no error:
    /// the answer contains the exception. Dropping the future interrupts the code.
    pub async fn run(&self, language: &str, code: impl Into<Text>) -> Result<Ran, BridgeError> {
        let named = language.parse::<ContextName>();
        let context = named.map_err(|_| BridgeError::Language { language: language.to_owned() })?;
        let mut open = OpenContext {
            cwd: self.workdir.clone().map(Text::from),
            ..contexts::open(context, language)
        };
        let _busy = self.begin().await;
        self.guest.settle(&mut open).await?;
        let run = self.guest.run_code_now(RunCode::new(open, code))?;
        Ok(run.collect(WHOLE_OUTPUT_BYTES_MAX).await?)
    }

    /// A program on pipes, to be modified and then passed to [`Inside::carry_out`].
    pub fn start(&self, program: requests::Program) -> Result<Start, BridgeError> {
        let mut start = Program::new(draw_session()?, program).start;
        start.cwd = self.workdir.clone().map(Text::from);
        Ok(start)
    }

    /// Runs a program to its end. `input` is for one whose start has an input.
    pub async fn carry_out(&self, start: &Start, input: &[u8]) -> Result<Output, BridgeError> {
        let _busy = self.begin().await;
        let mut outputs = Outputs::new(WHOLE_OUTPUT_BYTES_MAX, Unlimited);
        let on_drop = if start.holders.is_empty() { OnDrop::Release } else { OnDrop::Leave };
        let program = Program { on_drop, ..Program::from(start.clone()) };
        let ended = program.begin(&self.guest)?.collect(input, &mut outputs).await?;
        let truncated = outputs.is_cut() || ended.missing_bytes > 0;
        let (stdout, stderr) = (outputs.stdout.into_bytes(), outputs.stderr.into_bytes());
        Ok(Output { stdout, stderr, truncated, record: ended.record })
    }

    /// One that is asleep wakes first. What is wrong with it, the request finds out.
    async fn begin(&self) -> Option<Activity> {
        let (registry, which) = self.watched.as_ref()?;
        registry.keep_awake(which).await.ok().flatten()
    }
}
