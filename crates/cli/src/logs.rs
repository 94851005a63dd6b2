//! `logs`: print the output of a sandbox's sessions from the log on disk. Needs no daemon and works
//! after the sandbox has stopped. The log of a sandbox of another node is read through the daemon.

mod elsewhere;
mod lost;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use protocol::SessionId;
use protocol::message::Channel;
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::instant;
use super::output::{self, Sink};
use super::session;
use super::values::Since;
use crate::following::until_ended;
use control::message::LogQuery;
use elsewhere::OtherLog;
pub(crate) use lost::LostLog;
use sandbox::log::{Entry, Event, From, Reader};
use sandbox::{SandboxError, SandboxRef, find_log};

/// Show the output of a sandbox's sessions
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that a person writes")]
#[command(after_help = "Examples:
  host-bridge logs work
  host-bridge logs -f --tail 20 work
  host-bridge logs --since 10m --stderr work
  host-bridge logs --session build --json work | jq .

Works without the daemon, and after the sandbox has stopped. In a fleet it also reads the log of a
sandbox at another node, and of one that is gone with its node, as far as its output was durable. A
program's stdout is written to stdout, its stderr to stderr.")]
pub struct Logs {
    /// Keep printing new output until the sandbox stops or ctrl-c
    #[arg(short, long)]
    follow: bool,

    /// Print only the last N lines (default: all)
    #[arg(short = 'n', long, value_name = "N")]
    tail: Option<u64>,

    /// Print only output since this time: an age as in 10m, or a date
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// Print only this session: its id or a prefix of it (default: all)
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Print only output to stdout or a terminal
    #[arg(long)]
    stdout: bool,

    /// Print only output to stderr
    #[arg(long, conflicts_with = "stdout")]
    stderr: bool,

    /// Print every log entry as a line of JSON, with starts and ends
    #[arg(long)]
    json: bool,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,
}

impl Logs {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let source = match find_log(&context.paths, &self.which) {
            Ok(directory) => Source::Here(Box::new(self.open(context, directory).await?)),
            Err(SandboxError::NotFound { .. }) => match self.open_elsewhere(context).await? {
                Some(log) => Source::Elsewhere(Box::new(log)),
                None => match LostLog::open(context, &self.which).await? {
                    Some(lost) => return self.print_lost(lost).await,
                    None => return Err(context.unknown(&self.which).await.into()),
                },
            },
            Err(error) => return Err(error.into()),
        };
        let printer = self.printer()?;
        let printing = self.print(source, &printer);
        if self.follow { until_ended(printing).await } else { printing.await }
    }

    async fn open(&self, context: &Context, directory: PathBuf) -> Result<Reader> {
        let since_ms = self.since_ms();
        // With both, the lines are counted first: the last N, if they are recent enough.
        let from = match (self.tail, since_ms) {
            (Some(lines), _) => From::Lines(lines),
            (None, Some(ms)) => From::Since { ms },
            (None, None) => From::Start,
        };
        let mut reader = Reader::open(&directory, from)?;
        if let Some(wanted) = &self.session {
            let recorded = session::recorded_sessions(directory).await?;
            let recorded = recorded.into_iter().map(|recorded| recorded.session).collect();
            reader = reader.only(self.find(context, recorded, wanted).await?);
        }
        if self.stdout {
            reader = reader.outputs(|channel| channel != Channel::Stderr);
        } else if self.stderr {
            reader = reader.outputs(|channel| channel == Channel::Stderr);
        }
        Ok(reader)
    }

    /// `None`: no other node has the sandbox.
    async fn open_elsewhere(&self, context: &Context) -> Result<Option<OtherLog>> {
        let session = match &self.session {
            None => None,
            Some(wanted) => {
                let Some(recorded) = elsewhere::sessions(context, &self.which).await else {
                    return Ok(None);
                };
                Some(self.find(context, recorded.into_iter().collect(), wanted).await?)
            }
        };
        let query = LogQuery {
            sandbox: self.which.clone(),
            tail: self.tail,
            since_ms: self.since_ms(),
            session,
            is_stderr: (self.stdout || self.stderr).then_some(self.stderr),
            after: None,
            waits: false,
        };
        OtherLog::open(context, query).await
    }

    fn since_ms(&self) -> Option<u64> {
        self.since.map(|since| since.resolve(instant::now_ms()))
    }

    fn printer(&self) -> Result<Printer> {
        Ok(Printer {
            stdout: Sink::stdout()?,
            stderr: Sink::stderr()?,
            since_ms: self.since_ms().unwrap_or_default(),
            json: self.json,
        })
    }

    /// The session of this id or prefix, as `attach` and `kill` find it: in the log, and among those that
    /// have just begun.
    async fn find(
        &self,
        context: &Context,
        recorded: BTreeSet<SessionId>,
        wanted: &str,
    ) -> Result<SessionId> {
        let mut sessions: Vec<SessionId> = recorded.iter().cloned().collect();
        let found = session::find_by(&sessions, wanted, |session| session).cloned();
        let Err(unknown @ CliError::UnknownSession { .. }) = found else { return Ok(found?) };
        // Without a daemon, or after the sandbox's end, there is only the log.
        let Ok(guest) = context.look(&self.which, "logs").await else {
            return Err(unknown.into());
        };
        let living = guest.sessions(0).await.map(|list| list.sessions).unwrap_or_default();
        guest.close().await;
        let living = living.into_iter().map(|info| info.session);
        sessions.extend(living.filter(|session| !recorded.contains(session)));
        Ok(session::find_by(&sessions, wanted, |session| session)?.clone())
    }

    async fn print(&self, mut source: Source, printer: &Printer) -> Result<Exit> {
        loop {
            let entry = match &mut source {
                Source::Here(reader) if self.follow => reader.follow().await?,
                Source::Here(reader) => reader.next()?,
                Source::Elsewhere(log) => log.next(self.follow).await?,
            };
            let Some(entry) = entry else { return Ok(Exit::SUCCESS) };
            match printer.print(entry).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::SUCCESS),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Where the entries come from.
enum Source {
    Here(Box<Reader>),
    Elsewhere(Box<OtherLog>),
}

struct Printer {
    stdout: Sink,
    stderr: Sink,
    since_ms: u64,
    json: bool,
}

impl Printer {
    async fn print(&self, entry: Entry) -> std::io::Result<()> {
        if entry.time_ms < self.since_ms {
            return Ok(());
        }
        if self.json {
            let mut line = describe(&entry).to_string();
            line.push('\n');
            return self.stdout.write(line.into_bytes()).await;
        }
        match entry.event {
            Event::Output { channel: Channel::Stderr, bytes, .. } => self.stderr.write(bytes).await,
            Event::Output { bytes, .. } => self.stdout.write(bytes).await,
            Event::Gap { session, channel, from, to } => {
                let bytes = to.saturating_sub(from);
                output::note(&format!(
                    "{bytes} bytes of {} of session {session} were not recorded",
                    channel.name()
                ));
                Ok(())
            }
            Event::Missing { bytes } => {
                output::note(&format!(
                    "the log of the sandbox begins here: {bytes} older bytes of its sessions were dropped to stay within its limit"
                ));
                Ok(())
            }
            Event::Damaged { bytes } => {
                output::note(&format!(
                    "{bytes} bytes of the log's files are damaged, and the output in them is lost"
                ));
                Ok(())
            }
            Event::Started { .. }
            | Event::Resized { .. }
            | Event::Exited { .. }
            | Event::Closed { .. } => Ok(()),
        }
    }
}

/// An entry as a separate document. Invalid bytes of output that is not UTF-8 are replaced, which
/// `lossy` shows: the exact bytes are available without `--json`.
fn describe(entry: &Entry) -> serde_json::Value {
    let mut document = match &entry.event {
        Event::Started { session, command, started_at_ms } => json!({
            "event": "started", "session": session, "command": command,
            "started_at_ms": started_at_ms,
        }),
        Event::Output { session, channel, offset, bytes } => {
            let text = String::from_utf8_lossy(bytes);
            let lossy = matches!(text, std::borrow::Cow::Owned(_));
            json!({
                "event": "output", "session": session, "channel": channel, "offset": offset,
                "text": text, "lossy": lossy,
            })
        }
        Event::Gap { session, channel, from, to } => json!({
            "event": "gap", "session": session, "channel": channel, "from": from, "to": to,
        }),
        Event::Resized { session, rows, columns } => json!({
            "event": "resized", "session": session, "rows": rows, "columns": columns,
        }),
        Event::Exited { session, record } => json!({
            "event": "exited", "session": session, "record": record,
        }),
        Event::Missing { bytes } => json!({ "event": "missing", "bytes": bytes }),
        Event::Damaged { bytes } => json!({ "event": "damaged", "bytes": bytes }),
        Event::Closed { why } => json!({ "event": "closed", "why": why }),
    };
    document["time"] = instant::format(entry.time_ms).into();
    document
}
