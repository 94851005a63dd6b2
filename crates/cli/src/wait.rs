//! `wait`: wait until sandboxes have stopped, or until a session has ended.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tokio::time::timeout;

use super::context::Context;
use super::exit::{self, Exit};
use super::values::{human_duration, parse_duration};
use super::{output, session};
use control::{Client, ClientError, ErrorCode, Request};
use protocol::ExitRecord;
use protocol::exit::EXIT_TIMED_OUT;
use sandbox::log::RecordedSession;
use sandbox::{Record, SandboxRef, find_log};

/// Wait until sandboxes stop or a session ends
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge wait work
  host-bridge wait --timeout 1h work ci/job-7
  host-bridge wait work --session build    exits with the session's code

Prints a line for each sandbox: its name, and why it stopped. A wait does not keep a sandbox from being idle. The exit code is 124 after \
--timeout; what is waited for goes on.")]
pub struct Wait {
    /// Give up after this time (default: never)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Wait for this session of the one sandbox: its id or a prefix of it
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,

    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Wait {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let waiting = async {
            match (&self.session, self.which.as_slice()) {
                (Some(wanted), [which]) => wait_for_session(context, which, wanted).await,
                (Some(_), _) => {
                    output::note("--session is for one sandbox, but several are named");
                    Ok(Exit::FAILED_ITSELF)
                }
                (None, all) => wait_for_sandboxes(context, all).await,
            }
        };
        let Some(limit) = self.timeout else { return waiting.await };
        if let Ok(waited) = timeout(limit, waiting).await {
            return waited;
        }
        output::note(&format!("gave up waiting after {}", human_duration(limit)));
        Ok(Exit(EXIT_TIMED_OUT as u8))
    }
}

async fn wait_for_sandboxes(context: &Context, all: &[SandboxRef]) -> Result<Exit> {
    let mut daemon = context.daemon().await?;
    for which in all {
        let line = match ended(&mut daemon, which).await {
            Ok(Some(record)) => format!("{which}  {}", record.state),
            Ok(None) => format!("{which}  removed"),
            Err(error) => return Err(context.explain(which, error).await),
        };
        output::print_line(&output::printable(&line))?;
    }
    Ok(Exit::SUCCESS)
}

/// The record of a sandbox that has stopped; `None` if it was removed meanwhile.
async fn ended(daemon: &mut Client, which: &SandboxRef) -> Result<Option<Record>, ClientError> {
    let mut is_known = false;
    loop {
        let request = Request::Wait { sandbox: which.clone() };
        match daemon.ask::<Record>(&request).await {
            Ok(record) if record.state.is_over() => return Ok(Some(record)),
            // It was asked for as long as one request may take.
            Ok(_) => is_known = true,
            Err(ClientError::Refused(refusal))
                if is_known && refusal.code == ErrorCode::NotFound =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
}

async fn wait_for_session(context: &Context, which: &SandboxRef, wanted: &str) -> Result<Exit> {
    let unknown = match context.guest(which, "wait").await {
        Ok(guest) => {
            let sessions = guest.sessions(0).await?.sessions;
            match session::find(&sessions, wanted) {
                Ok(found) => {
                    let record = guest.wait(&found.session).await?;
                    guest.close().await;
                    return Ok(report(&record, &found.command));
                }
                Err(unknown) => unknown.into(),
            }
        }
        Err(error) => error,
    };
    // The agent forgets sessions that have ended, and is gone with its sandbox; the log has both.
    let Ok(log) = find_log(&context.paths, which) else { return Err(unknown) };
    let recorded = session::recorded_sessions(log).await?;
    match session::find_by(&recorded, wanted, |recorded| &recorded.session) {
        Ok(RecordedSession { exit: Some(record), command, .. }) => Ok(report(record, command)),
        _ => Err(unknown),
    }
}

/// The exit code of a session, with the cause on stderr if the code does not show it.
fn report(record: &ExitRecord, command: &str) -> Exit {
    if let Some(why) = exit::explain(&record.cause, command) {
        output::note(&why);
    }
    Exit::of(record)
}
