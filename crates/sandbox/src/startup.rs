//! Makes a started machine ready: runs the start command of a template as a session, and the ready command again
//! and again until it exits with 0.
//!
//! Both run as the sandbox's user in its directory. The start command is recorded like any session, and goes on
//! when this is over; it may end with 0, as one does that leaves a daemon. A failure is reported with the newest
//! output of both. The caller ends the machine then.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::SessionId;
use protocol::exit::Cause;
use protocol::requests::{self, SpoolPolicy, SpoolSpec};
use tokio::time::{Instant, sleep, sleep_until};

use crate::limits::{READY_PAUSE, READY_TIMEOUT_DEFAULT, READY_TRY_MAX, STARTUP_OUTPUT_BYTES};
use crate::stored::HeldImage;
use crate::{RECORDED_HOLDER, TemplateOptions};
use agent_client::guest::{Guest, GuestError};
use agent_client::program::{
    Ended, Event, OnDrop, Program, Running, Tail, draw_session, ran_out_of_memory,
};
use host::units::human_duration;

/// The session of the start command.
pub const START_SESSION: &str = "template-start";
/// Who reads its output until the sandbox is ready.
const READER: &str = "startup";

/// The commands of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    pub start: Option<String>,
    pub ready: Option<String>,
    /// For both together.
    pub deadline: Duration,
}

/// The user and the directory that they run with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupPlace {
    pub user: Option<String>,
    pub workdir: Option<String>,
}

impl Startup {
    /// The commands of a template; `None` without any.
    pub fn of(options: &TemplateOptions) -> Option<Self> {
        let TemplateOptions { start, ready, ready_timeout_ms, .. } = options;
        let deadline = ready_timeout_ms.map_or(READY_TIMEOUT_DEFAULT, Duration::from_millis);
        let startup = Self { start: start.clone(), ready: ready.clone(), deadline };
        (start.is_some() || ready.is_some()).then_some(startup)
    }
}

impl StartupPlace {
    /// As requested, or as the image of the store says.
    pub fn of(user: Option<String>, workdir: Option<String>, image: Option<&HeldImage>) -> Self {
        let process = image.map(|image| &image.lease.image.process);
        Self {
            user: user.or_else(|| image.and_then(HeldImage::user).map(str::to_owned)),
            workdir: workdir.or_else(|| process.and_then(|process| process.workdir.clone())),
        }
    }
}

/// Why a sandbox did not become ready.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("its start command could not be run: {0}")]
    Start(GuestError),
    #[error("its ready command could not be run: {0}")]
    Ready(GuestError),
    #[error(
        "its start command ended with {how} before it was ready; start wrote: {start}; ready wrote: {ready}"
    )]
    Ended { how: String, start: String, ready: String },
    #[error(
        "its ready command did not exit with 0 within {}: {last}; start wrote: {start}; ready wrote: {ready}",
        human_duration(*.waited)
    )]
    Late { waited: Duration, last: String, start: String, ready: String },
}

/// The newest try of the ready command.
struct Try {
    output: Tail,
    ended: Option<String>,
    /// How the one before it has ended, and what it wrote.
    before: Option<(String, Tail)>,
}

impl Try {
    fn new() -> Self {
        Self { output: Tail::new(STARTUP_OUTPUT_BYTES), ended: None, before: None }
    }

    fn begin(&mut self) {
        if let Some(how) = self.ended.take() {
            let output = std::mem::replace(&mut self.output, Tail::new(STARTUP_OUTPUT_BYTES));
            self.before = Some((how, output));
        }
    }

    /// What is known of it when the time is over: of one that has only begun, how the one before it ended.
    fn outcome(&self) -> (String, &Tail) {
        match (&self.ended, &self.before) {
            (Some(how), _) => (format!("it ended with {how}"), &self.output),
            (None, Some((how, output))) => {
                (format!("it ended with {how}, and was tried again"), output)
            }
            (None, None) => ("it has not ended yet".to_owned(), &self.output),
        }
    }
}

/// Runs the commands. Dropping the future ends the ready command, and leaves the start command to the caller.
pub(super) async fn run(
    guest: &Guest,
    startup: &Startup,
    place: &StartupPlace,
) -> Result<(), StartupError> {
    let deadline = Instant::now() + startup.deadline;
    let mut output = Tail::new(STARTUP_OUTPUT_BYTES);
    let mut started = match &startup.start {
        Some(script) => Some(begin(guest, script, place).await.map_err(StartupError::Start)?),
        None => None,
    };
    let Some(ready) = &startup.ready else { return Ok(()) };
    let newest = Mutex::new(Try::new());
    let mut readiness = pin!(until_ready(guest, ready, place, &newest));
    loop {
        let event = tokio::select! {
            // A sandbox whose start command has failed is not ready, even if something in it answers.
            biased;
            event = next(&mut started) => event,
            ready = &mut readiness => return ready.map_err(StartupError::Ready),
            () = sleep_until(deadline) => {
                let newest = look(&newest);
                let (last, written) = newest.outcome();
                let (start, ready) = (shown(&output), shown(written));
                return Err(StartupError::Late { waited: startup.deadline, last, start, ready });
            }
        };
        match event.map_err(StartupError::Start)? {
            Some(Event::Output { bytes, .. }) => output.add(&bytes),
            Some(Event::Ended(ended)) if !ended.is_success() => {
                let (start, ready) = (shown(&output), shown(&look(&newest).output));
                return Err(StartupError::Ended { how: how(&ended), start, ready });
            }
            Some(Event::Started(_) | Event::Gap { .. }) => {}
            Some(Event::Ended(_)) | None => started = None,
        }
    }
}

/// Whether the start command of a machine still stands for a ready sandbox: it runs, or has ended with 0.
pub(super) async fn still_stands(guest: &Guest) -> Result<Option<String>, GuestError> {
    let sessions = guest.lasting_sessions(0).await?.sessions;
    let start = sessions.into_iter().find(|info| info.session.as_str() == START_SESSION);
    let exit = start.and_then(|info| info.exit);
    let failed = exit.filter(|record| record.cause.shell_code() != 0);
    Ok(failed.map(|record| format!("exit code {}", record.cause.shell_code())))
}

async fn begin(guest: &Guest, script: &str, place: &StartupPlace) -> Result<Running, GuestError> {
    let session: SessionId = START_SESSION.parse().expect("letters and a hyphen are a name");
    let mut program = Program::new(session, command(script));
    settle(&mut program, place);
    program.start.tied = false;
    program.start.holders = vec![RECORDED_HOLDER.to_owned()];
    // Nobody records yet, and the program must not wait for that.
    program.start.spool = SpoolSpec { policy: SpoolPolicy::DropOldest, ..SpoolSpec::default() };
    program.reader = Some(READER.to_owned());
    program.on_drop = OnDrop::Leave;
    let mut running = program.begin(guest)?;
    running.started().await?;
    Ok(running)
}

async fn next(started: &mut Option<Running>) -> Result<Option<Event>, GuestError> {
    match started {
        Some(running) => running.next().await,
        None => std::future::pending().await,
    }
}

/// Resolves when the ready command exits with 0.
async fn until_ready(
    guest: &Guest,
    script: &str,
    place: &StartupPlace,
    newest: &Mutex<Try>,
) -> Result<(), GuestError> {
    loop {
        let mut program = Program::new(draw_session()?, command(script));
        settle(&mut program, place);
        program.start.deadline_ms = Some(READY_TRY_MAX.as_millis() as u64);
        let mut running = program.begin(guest)?;
        look(newest).begin();
        while let Some(event) = running.next().await? {
            match event {
                Event::Output { bytes, .. } => look(newest).output.add(&bytes),
                Event::Ended(ended) if ended.is_success() => return Ok(()),
                Event::Ended(ended) => look(newest).ended = Some(how(&ended)),
                Event::Started(_) | Event::Gap { .. } => {}
            }
        }
        drop(running);
        sleep(READY_PAUSE).await;
    }
}

fn command(script: &str) -> requests::Program {
    requests::Program::Script { script: script.into(), shell: None }
}

fn settle(program: &mut Program, place: &StartupPlace) {
    program.start.user.clone_from(&place.user);
    program.start.cwd = place.workdir.as_deref().map(Into::into);
}

fn how(ended: &Ended) -> String {
    let code = ended.shell_code();
    match ended.record.cause {
        Cause::OutOfMemory { limit_bytes } => {
            format!("exit code {code} (it {})", ran_out_of_memory(limit_bytes))
        }
        _ => format!("exit code {code}"),
    }
}

fn shown(output: &Tail) -> String {
    let text = String::from_utf8_lossy(output.bytes());
    let text = text.trim();
    if text.is_empty() { "nothing".to_owned() } else { text.to_owned() }
}

fn look(newest: &Mutex<Try>) -> MutexGuard<'_, Try> {
    newest.lock().unwrap_or_else(PoisonError::into_inner)
}
