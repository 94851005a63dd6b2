//! `replay`: play what a sandbox did, with the times at which it happened, or export it. Output goes where it went, and
//! everything else is a note on stderr. It only reads: nothing of it can reach a program in a sandbox.

mod asciicast;
mod page;
mod recording;
mod source;
mod start;
mod typing;

use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal, stdout};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::SessionId;
use protocol::message::Channel;
use tokio::time::{Instant, sleep_until};

use super::context::{Context, LogPlace};
use super::exit::Exit;
use super::failure::CliError;
use super::output::{self, Sink};
use super::session;
use super::values::parse_duration;
use crate::following::until_ended;
use crate::logs::LostLog;
use crate::terminal::form::SCREEN_IN_ORDER;
use control::message::PlayQuery;
use control::{Client, Request};
use recording::Recording;
use sandbox::log::{Event, Only};
use sandbox::{SandboxRef, find_record};
use services::timeline::{Kind, Moment, Places, Selection, Timeline, What};
use source::{Moments, Played};
use start::StartPoint;
use typing::TypedLines;

/// Nobody watches faster, and a pause that is divided by more is none.
const SPEED_MAX: f64 = 1000.0;
/// How much earlier than a failure `--errors` begins: what led to it is often the last output.
const FAILURE_LEAD_MS: u64 = 2000;

/// Play what a sandbox did again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge replay work --speed 10 --max-idle 1s
  host-bridge replay work build --speed 4 --max-idle 2s
  host-bridge replay work build --from 1m30s
  host-bridge replay work --errors
  host-bridge replay work build --input
  host-bridge replay work build --export asciicast build.cast
  host-bridge replay work build --export html build.html

Without a SESSION it plays everything on one clock: all sessions, and as notes on stderr what happened to the
sandbox, runs of code, egress decisions and artifacts. It only shows; nothing is sent to a program, and keys
go nowhere. ctrl-c ends it. With --speed 0 the output is written at once, byte for byte. An exported page
needs no network and runs nothing but its own player. Works without the daemon, and after the sandbox has
stopped. In a fleet it also plays what a sandbox of another node did, and of one that is gone with its node
the output that was durable.")]
pub struct Replay {
    /// Play so many times as fast; 0 writes everything at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed, conflicts_with = "export")]
    speed: f64,

    /// Begin here: a time into the replay as in 1m30s, a date, or an offset of the output as in @4096. A terminal
    /// is drawn as it was then; other output before it is left out
    #[arg(long, value_name = "TIME|OFFSET", conflicts_with = "export")]
    from: Option<StartPoint>,

    /// Begin shortly before the first failure, or the Nth as in --errors=2: a session that ended without success, an
    /// end for want of memory, a refused connection, a run that raised
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        conflicts_with_all = ["from", "export"]
    )]
    errors: Option<NonZeroUsize>,

    /// Show what happened beside the output, with a SESSION too
    #[arg(long, conflicts_with_all = ["no_events", "export"])]
    events: bool,

    /// Show nothing but the output
    #[arg(long, conflicts_with = "export")]
    no_events: bool,

    /// Show what was typed too, as notes or in the export, where that is recorded. It may have passwords
    #[arg(long)]
    input: bool,

    /// Shorten longer pauses to this time (default: none)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_idle: Option<Duration>,

    /// Write the session to a file instead, as `asciicast` (version 2) or as a page of `html`; - is stdout
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"])]
    export: Option<Vec<String>>,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// The session: its id or a prefix of it (default: all)
    #[arg(value_name = "SESSION")]
    session: Option<String>,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.0..=SPEED_MAX).contains(&speed) => Ok(speed),
        _ => Err(format!("{text:?} is not a speed: write a number from 0 to {SPEED_MAX}")),
    }
}

impl Replay {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        match context.log_place(&self.which).await? {
            LogPlace::Here(log) => self.play_here(context, log).await,
            LogPlace::Elsewhere(daemon) => self.play_elsewhere(context, daemon).await,
        }
    }

    async fn play_here(&self, context: &Context, log: PathBuf) -> Result<Exit> {
        let (record, _) = find_record(&context.paths, &self.which)?;
        let recorded = session::recorded_sessions(log.clone()).await?;
        let only = self.one_of(&recorded, |one| &one.session)?;
        let kinds = Kind::played(self.has_events(), self.input);
        let sessions = only.map_or(Only::All, Only::of);
        let selection = Selection { sessions, kinds, ..Selection::default() };
        let places = Places { paths: &context.paths, record: &record, log: &log };
        let open = || -> Result<Moments> {
            let timeline = Timeline::open(places, selection.clone(), Vec::new())?;
            Ok(Moments::Here(Box::new(timeline)))
        };
        let sessions: Vec<_> = recorded.iter().map(Played::from).collect();
        self.play(open, &sessions, only.map(|only| &only.session)).await
    }

    async fn play_elsewhere(&self, context: &Context, mut daemon: Box<Client>) -> Result<Exit> {
        let request = Request::LogSessions { sandbox: self.which.clone() };
        let sessions: Vec<SessionId> = match daemon.ask(&request).await {
            Ok(sessions) => sessions,
            Err(error) => match LostLog::open(context, &self.which).await? {
                Some(lost) => return self.play_lost(lost).await,
                None => return Err(context.explain(&self.which, error).await),
            },
        };
        let only = self.one_of(&sessions, |session| session)?;
        let query = PlayQuery {
            sandbox: self.which.clone(),
            session: only.cloned(),
            has_events: self.has_events(),
            has_input: self.input,
            after: None,
        };
        let moments = source::fetch(context, &mut daemon, query).await?;
        let known = source::sessions(&moments);
        self.play(|| Ok(Moments::fetched(&moments)), &known, only).await
    }

    /// What is left of a sandbox that is gone with its node, and then where that ends.
    async fn play_lost(&self, mut lost: LostLog) -> Result<Exit> {
        let mut moments = source::read_lost(&mut lost).await?;
        let known = source::sessions(&moments);
        let only = self.one_of(&known, |one| &one.session)?;
        let kinds = Kind::played(self.has_events(), self.input);
        moments.retain(|moment| {
            let is_wanted = |session| only.is_none_or(|only| only.session.as_str() == session);
            kinds.contains(&moment.kind()) && moment.session().is_none_or(is_wanted)
        });
        let only = only.map(|only| &only.session);
        let moments = moments.into();
        match self.play(|| Ok(Moments::fetched(&moments)), &known, only).await? {
            Exit::SUCCESS => lost.end(),
            exit => Ok(exit),
        }
    }

    /// The session that is wanted alone, if one is: by its id or a prefix, or because there is no other to export.
    fn one_of<'a, T>(
        &self,
        all: &'a [T],
        id: impl Fn(&T) -> &SessionId,
    ) -> Result<Option<&'a T>, CliError> {
        match (&self.session, all) {
            (Some(wanted), all) => session::find_by(all, wanted, id).map(Some),
            (None, [one]) if self.export.is_some() => Ok(Some(one)),
            (None, _) if self.export.is_some() => Err(CliError::SessionNeeded {
                sessions: all.iter().map(|one| id(one).to_string()).collect(),
            }),
            (None, _) => Ok(None),
        }
    }

    /// Whether what happened beside the output is wanted.
    fn has_events(&self) -> bool {
        let is_whole = self.export.is_some() || self.session.is_none();
        self.events || (is_whole && !self.no_events)
    }

    /// Plays or exports what `open` reads from its beginning, of these sessions.
    async fn play(
        &self,
        open: impl Fn() -> Result<Moments>,
        sessions: &[Played],
        only: Option<&SessionId>,
    ) -> Result<Exit> {
        if let Some([format, file]) = self.export.as_deref() {
            let session = sessions.iter().find(|one| Some(&one.session) == only);
            let session =
                session.ok_or_else(|| CliError::SessionNeeded { sessions: Vec::new() })?;
            return self.export(open()?, session, format, file);
        }
        let from = match self.errors {
            None => self.from,
            Some(wanted) => match begin_of_failure(&mut open()?, wanted)? {
                Ok(from) => Some(from),
                Err(exit) => return Ok(exit),
            },
        };
        let terminals = sessions.iter().filter(|one| one.is_terminal);
        let terminals = terminals.map(|one| one.session.clone()).collect();
        let player = Player {
            stdout: Sink::stdout()?,
            stderr: Sink::stderr()?,
            speed: self.speed,
            max_idle: self.max_idle,
            from,
            has_events: self.has_events(),
            terminals,
        };
        let mut moments = open()?;
        let played = until_ended(player.play(&mut moments)).await;
        if !player.terminals.is_empty() && stdout().is_terminal() {
            // The program may have left the screen as it needed it.
            output::print(&String::from_utf8_lossy(SCREEN_IN_ORDER))?;
        }
        played
    }

    fn export(&self, moments: Moments, session: &Played, format: &str, file: &str) -> Result<Exit> {
        let write = match format {
            "asciicast" => asciicast::write,
            "html" => page::write,
            other => return Err(CliError::UnknownExport { format: other.to_owned() }.into()),
        };
        let recording = Recording::read(&self.which, session, moments, self.max_idle)?;
        let text = write(&recording);
        if file == "-" {
            output::print(&text)?;
        } else {
            std::fs::write(file, text)
                .map_err(|source| CliError::Unwritable { path: file.into(), source })?;
        }
        Ok(Exit::SUCCESS)
    }
}

/// Where to begin for the Nth failure, which is named; or how to exit if there is none.
fn begin_of_failure(
    moments: &mut Moments,
    wanted: NonZeroUsize,
) -> Result<Result<StartPoint, Exit>> {
    let (mut count, mut found) = (0, None);
    while let Some(moment) = moments.next()? {
        if moment.is_failure() {
            count += 1;
            if count == wanted.get() {
                found = Some((moment.at_ms, moment.summary()));
            }
        }
    }
    Ok(match found {
        Some((at_ms, summary)) => {
            output::note(&format!("failure {wanted} of {count}: {summary}"));
            Ok(StartPoint::At(at_ms.saturating_sub(FAILURE_LEAD_MS)))
        }
        None if count == 0 => {
            output::note("nothing failed in what is recorded");
            Err(Exit::SUCCESS)
        }
        None => {
            output::note(&format!("there is no failure {wanted}: there are {count}"));
            Err(Exit::FAILED_ITSELF)
        }
    })
}

struct Player {
    stdout: Sink,
    stderr: Sink,
    speed: f64,
    max_idle: Option<Duration>,
    from: Option<StartPoint>,
    /// Whether what happened beside the output is shown.
    has_events: bool,
    /// What came before the start is needed for their screens.
    terminals: BTreeSet<SessionId>,
}

impl Player {
    async fn play(&self, moments: &mut Moments) -> Result<Exit> {
        // When the entry before this one is due, and when it was recorded.
        let mut before: Option<(Instant, u64)> = None;
        let mut first_ms = None;
        let mut typing = TypedLines::default();
        while let Some(mut moment) = moments.next()? {
            if let What::Input { typed, .. } = &mut moment.what
                && !typing.join(typed)
            {
                continue;
            }
            let is_of_log = moment.kind().is_of_log();
            if is_of_log {
                first_ms.get_or_insert(moment.at_ms);
            }
            let early = self.early(&moment, first_ms, before.is_some());
            // The sessions are the clock: what was before the first and comes after the last waits for nobody.
            let is_paced = is_of_log || (before.is_some() && !moments.is_log_over());
            if early != usize::MAX && is_paced {
                let now = Instant::now();
                let due = before.map_or(now, |(due, ms)| due + self.pause(moment.at_ms, ms));
                before = Some((due, moment.at_ms));
                if due > now {
                    sleep_until(due).await;
                }
            }
            if let Err(error) = self.show_early(*moment, early, first_ms).await {
                return ended(error);
            }
        }
        for moment in typing.rest(before.map_or(0, |(_, ms)| ms)) {
            note(&moment, first_ms);
        }
        Ok(Exit::SUCCESS)
    }

    /// How much of an entry is before the start: all of it (`usize::MAX`), or so many bytes of its output.
    fn early(&self, moment: &Moment, first_ms: Option<u64>, has_begun: bool) -> usize {
        let Some(from) = self.from else { return 0 };
        match (from, first_ms) {
            (StartPoint::After(_), None) => usize::MAX,
            (StartPoint::Offset(_), _) if !has_begun && !moment.kind().is_of_log() => usize::MAX,
            (from, first_ms) => from.bytes_before(moment, first_ms.unwrap_or(moment.at_ms)),
        }
    }

    fn pause(&self, now_ms: u64, before_ms: u64) -> Duration {
        if self.speed == 0.0 {
            return Duration::ZERO;
        }
        let pause = Duration::from_millis(now_ms.saturating_sub(before_ms));
        pause.min(self.max_idle.unwrap_or(Duration::MAX)).div_f64(self.speed)
    }

    /// Shows an entry, of which so many bytes are before the start.
    async fn show_early(
        &self,
        mut moment: Moment,
        early: usize,
        first_ms: Option<u64>,
    ) -> std::io::Result<()> {
        if let What::Log(Event::Output { session, bytes, .. }) = &mut moment.what {
            if !self.terminals.contains(session) {
                bytes.drain(..early.min(bytes.len()));
            }
        } else if early > 0 {
            return Ok(());
        }
        self.show(moment, first_ms).await
    }

    async fn show(&self, moment: Moment, first_ms: Option<u64>) -> std::io::Result<()> {
        let kind = moment.kind();
        match moment.what {
            What::Log(Event::Output { channel: Channel::Stderr, bytes, .. }) => {
                self.stderr.write(bytes).await
            }
            What::Log(Event::Output { bytes, .. }) => self.stdout.write(bytes).await,
            _ if kind == Kind::Gap => {
                output::note(&moment.summary());
                Ok(())
            }
            _ if kind == Kind::Input || (self.has_events && kind != Kind::Resized) => {
                note(&moment, first_ms);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A note of what happened, with its time since the first session began.
fn note(moment: &Moment, first_ms: Option<u64>) {
    let since_ms = first_ms.map_or(0, |first_ms| moment.at_ms.saturating_sub(first_ms));
    let (minutes, seconds) = (since_ms / 60_000, since_ms as f64 % 60_000.0 / 1000.0);
    let text = format!("{minutes}:{seconds:04.1} {}", moment.summary());
    if output::stderr_is_screen() {
        output::note(&format!("\x1b[2m{text}\x1b[0m"));
    } else {
        output::note(&text);
    }
}

/// A reader that has gone away is no failure.
fn ended(error: std::io::Error) -> Result<Exit> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(Exit::SUCCESS),
        _ => Err(error.into()),
    }
}
