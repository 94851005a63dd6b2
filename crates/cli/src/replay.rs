//! `replay`: play the output of sessions from the log on disk, with the times at which it came, or export it. It reads
//! the log alone: nothing of it can reach a program in a sandbox.

mod asciicast;
mod page;
mod recording;
mod start;

use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use protocol::SessionId;
use protocol::message::Channel;
use tokio::time::{Instant, sleep_until};

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{self, Sink};
use super::session;
use super::values::parse_duration;
use crate::following::until_ended;
use crate::terminal::form::SCREEN_IN_ORDER;
use recording::Recording;
use sandbox::SandboxRef;
use sandbox::log::{Entry, Event, Playback, RecordedSession};
use start::StartPoint;

/// Nobody watches faster, and a pause that is divided by more is none.
const SPEED_MAX: f64 = 1000.0;

/// Play a session's output again, in its time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge replay work --speed 10 --max-idle 1s
  host-bridge replay work build --speed 4 --max-idle 2s
  host-bridge replay work build --from 1m30s
  host-bridge replay work build --export asciicast build.cast
  host-bridge replay work build --export html build.html

Plays what the log has: without a SESSION all sessions on one clock. It only shows; nothing is sent to a
program, and keys go nowhere. ctrl-c ends it. With --speed 0 the output is written at once, byte for byte.
An exported page needs no network and runs nothing but its own player. Works without the daemon, and after
the sandbox has stopped.")]
pub struct Replay {
    /// Play so many times as fast; 0 writes everything at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed, conflicts_with = "export")]
    speed: f64,

    /// Begin here: a time into the replay as in 1m30s, a date, or an offset of the output as in @4096. A terminal
    /// is drawn as it was then; other output before it is left out
    #[arg(long, value_name = "TIME|OFFSET", conflicts_with = "export")]
    from: Option<StartPoint>,

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
        let log = context.log(&self.which).await?;
        let recorded = session::recorded_sessions(log.clone()).await?;
        let only = match (&self.session, recorded.as_slice()) {
            (Some(wanted), all) => Some(session::find_by(all, wanted, |one| &one.session)?),
            (None, [one]) => Some(one),
            (None, _) => None,
        };
        if let Some([format, file]) = self.export.as_deref() {
            let only = only.ok_or_else(|| CliError::SessionNeeded {
                sessions: recorded.iter().map(|one| one.session.to_string()).collect(),
            })?;
            return self.export(&log, only, format, file);
        }
        let terminals = recorded.iter().filter(|one| one.outputs.contains_key(&Channel::Terminal));
        let terminals = terminals.map(|one| one.session.clone()).collect();
        let player = Player {
            stdout: Sink::stdout()?,
            stderr: Sink::stderr()?,
            speed: self.speed,
            max_idle: self.max_idle,
            from: self.from,
            terminals,
        };
        let mut playback = Playback::open(&log, only)?;
        let played = until_ended(player.play(&mut playback)).await;
        if !player.terminals.is_empty() && stdout().is_terminal() {
            // The program may have left the screen as it needed it.
            output::print(&String::from_utf8_lossy(SCREEN_IN_ORDER))?;
        }
        played
    }

    fn export(
        &self,
        log: &Path,
        session: &RecordedSession,
        format: &str,
        file: &str,
    ) -> Result<Exit> {
        let write = match format {
            "asciicast" => asciicast::write,
            "html" => page::write,
            other => return Err(CliError::UnknownExport { format: other.to_owned() }.into()),
        };
        let playback = Playback::open(log, Some(session))?;
        let recording = Recording::read(&self.which, session, playback, self.max_idle)?;
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

struct Player {
    stdout: Sink,
    stderr: Sink,
    speed: f64,
    max_idle: Option<Duration>,
    from: Option<StartPoint>,
    /// What came before the start is needed for their screens.
    terminals: BTreeSet<SessionId>,
}

impl Player {
    async fn play(&self, playback: &mut Playback) -> Result<Exit> {
        // When the entry before this one is due, and when it was recorded.
        let mut before: Option<(Instant, u64)> = None;
        let mut first_ms = None;
        while let Some(entry) = playback.next()? {
            let first_ms = *first_ms.get_or_insert(entry.time_ms);
            let early = self.from.map_or(0, |from| from.bytes_before(&entry, first_ms));
            if early == usize::MAX {
                match self.show_early(entry, early).await {
                    Ok(()) => continue,
                    Err(error) => return ended(error),
                }
            }
            let now = Instant::now();
            let due = before.map_or(now, |(due, ms)| due + self.pause(entry.time_ms, ms));
            before = Some((due, entry.time_ms));
            if due > now {
                sleep_until(due).await;
            }
            if let Err(error) = self.show_early(entry, early).await {
                return ended(error);
            }
        }
        Ok(Exit::SUCCESS)
    }

    fn pause(&self, now_ms: u64, before_ms: u64) -> Duration {
        if self.speed == 0.0 {
            return Duration::ZERO;
        }
        let pause = Duration::from_millis(now_ms.saturating_sub(before_ms));
        pause.min(self.max_idle.unwrap_or(Duration::MAX)).div_f64(self.speed)
    }

    /// Shows an entry, of which so many bytes are before the start.
    async fn show_early(&self, mut entry: Entry, early: usize) -> std::io::Result<()> {
        if let Event::Output { session, bytes, .. } = &mut entry.event
            && !self.terminals.contains(session)
        {
            bytes.drain(..early.min(bytes.len()));
        } else if early > 0 && !matches!(entry.event, Event::Output { .. }) {
            return Ok(());
        }
        self.show(entry).await
    }

    async fn show(&self, entry: Entry) -> std::io::Result<()> {
        match entry.event {
            Event::Output { channel: Channel::Stderr, bytes, .. } => self.stderr.write(bytes).await,
            Event::Output { bytes, .. } => self.stdout.write(bytes).await,
            Event::Gap { session, channel, from, to } => {
                let (bytes, output) = (to.saturating_sub(from), channel.name());
                output::note(&format!(
                    "{bytes} bytes of {output} of session {session} are not in the log"
                ));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A reader that has gone away is no failure.
fn ended(error: std::io::Error) -> Result<Exit> {
    match error.kind() {
        ErrorKind::BrokenPipe => Ok(Exit::SUCCESS),
        _ => Err(error.into()),
    }
}
