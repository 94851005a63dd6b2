//! What programs do in a sandbox, each as one call that returns all that came of it.

use std::borrow::Cow;

use protocol::repl::OpenContext;
use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio};
use protocol::{ContextName, ExitRecord, SessionId, Text};

use super::BridgeError;
use agent_client::guest::exec::collect;
use agent_client::guest::{Guest, Ran, RunCode, contexts};
use host::id::RandomId;
use sandbox::{Activity, Registry, SandboxRef};

/// What is kept of each output when all of it is asked for at the end: a caller that wants more
/// reads it as it comes.
pub const WHOLE_OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A sandbox from within. Clones are the same.
#[derive(Clone)]
pub struct Inside {
    guest: Guest,
    /// Where programs begin.
    workdir: Option<String>,
    /// Who is told that the sandbox is not idle.
    watched: Option<(Registry, SandboxRef)>,
}

/// What a program has said, and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether more was said than is kept here.
    pub truncated: bool,
    pub record: ExitRecord,
}

impl Output {
    /// Whether the program has exited with 0.
    pub fn is_success(&self) -> bool {
        self.exit_code() == 0
    }

    /// What a shell would report: 124 for one that overran its deadline, 128+n for signal n.
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

    pub(super) fn kept(
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

    /// Runs a program without a shell. A program that ends with another code than 0 is no error; one
    /// that cannot be started is. Giving the future up leaves it running until this process ends.
    pub async fn exec(
        &self,
        argv: impl IntoIterator<Item = impl Into<Text>>,
    ) -> Result<Output, BridgeError> {
        let argv = argv.into_iter().map(Into::into).collect();
        self.carry_out(&self.start(Program::Argv { argv })?, &[]).await
    }

    /// Runs a script with the sandbox's shell.
    pub async fn shell(&self, script: impl Into<Text>) -> Result<Output, BridgeError> {
        let script = script.into();
        self.carry_out(&self.start(Program::Script { script, shell: None })?, &[]).await
    }

    /// Runs code in the language's interpreter, which keeps its state from one run to the next.
    /// Code that fails is no error: what it raised is in the answer. Giving the future up interrupts
    /// the code.
    pub async fn run(&self, language: &str, code: impl Into<Text>) -> Result<Ran, BridgeError> {
        let named = language.parse::<ContextName>();
        let context = named.map_err(|_| BridgeError::Language { language: language.to_owned() })?;
        let mut open = OpenContext {
            cwd: self.workdir.clone().map(Text::from),
            ..contexts::open(context, language)
        };
        let _busy = self.begin();
        self.guest.settle(&mut open).await?;
        let run = self.guest.run_code_now(RunCode::new(open, code))?;
        Ok(run.collect(WHOLE_OUTPUT_BYTES_MAX).await?)
    }

    /// A program on pipes, to be changed and then given to [`Inside::carry_out`].
    pub fn start(&self, program: Program) -> Result<Start, BridgeError> {
        let drawn = RandomId::draw().map_err(BridgeError::Draw)?;
        let session: SessionId = drawn.as_str().parse().expect("hexadecimal digits make a name");
        Ok(Start {
            session,
            program,
            cwd: self.workdir.clone().map(Text::from),
            env: Vec::new(),
            user: None,
            stdio: Stdio::Pipes { stdin: false },
            deadline_ms: None,
            spool: SpoolSpec::default(),
            holders: Vec::new(),
            tied: true,
            limits: GroupLimits::default(),
        })
    }

    /// Runs a program to its end. `input` is for one whose start has an input.
    pub async fn carry_out(&self, start: &Start, input: &[u8]) -> Result<Output, BridgeError> {
        let _busy = self.begin();
        let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
        let finished =
            collect(&self.guest, start, input, |b| stdout.keep(b), |b| stderr.keep(b)).await?;
        let truncated = stdout.is_cut || stderr.is_cut || finished.missing_bytes > 0;
        let (stdout, stderr) = (stdout.bytes, stderr.bytes);
        Ok(Output { stdout, stderr, truncated, record: finished.record })
    }

    fn begin(&self) -> Option<Activity> {
        let (registry, which) = self.watched.as_ref()?;
        registry.activity(which)
    }
}

/// One output, as far as it is kept.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Kept {
    fn keep(&mut self, bytes: &[u8]) {
        let room = WHOLE_OUTPUT_BYTES_MAX - self.bytes.len();
        self.is_cut |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_cut_exactly_when_there_is_more_than_its_bound() {
        let mut kept = Kept::default();
        kept.keep(&vec![b'a'; WHOLE_OUTPUT_BYTES_MAX]);
        assert!(!kept.is_cut);
        kept.keep(b"");
        assert!(!kept.is_cut);
        kept.keep(b"b");
        assert!(kept.is_cut && kept.bytes.len() == WHOLE_OUTPUT_BYTES_MAX);
    }
}
