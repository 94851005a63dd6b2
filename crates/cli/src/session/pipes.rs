//! Attaches to a session on pipes: its stdout and stderr are written to ours byte for byte, stdin
//! is sent to it with `-i`, and signals are passed on.
//!
//! The next piece of output is requested only when the previous one has been written. A slow reader
//! therefore slows the program down; nothing is lost and nothing accumulates.

use std::io::ErrorKind;

use anyhow::{Context as _, Result};
use protocol::message::{Channel, Started};
use protocol::requests::{Release, Signal, Start, Target};
use protocol::{Cause, ExitRecord, FaultCode, SessionId};

use super::super::exit::{self, Exit};
use super::super::failure::CliError;
use super::super::output::{self, Sink};
use super::keyboard;
use crate::terminal::{Notice, Notices};
use agent_client::guest::{Guest, GuestError, Writer};
use agent_client::program::{Ended, Event, Program, Running};

const SIGKILL: i32 = nix::libc::SIGKILL;

/// The message for a link that broke while a program ran.
const CUT: &str =
    "the connection to the sandbox was lost, so the exit code of the program is unknown";

/// How the output of a session ended.
enum SessionResult {
    Ended(Box<Ended>),
    /// Our stdout is closed.
    Unread,
}

/// Runs `start` to its end. `holder` is our own name among its holders; `command` names the
/// program in messages.
pub async fn run(guest: &Guest, start: &Start, holder: &str, command: &str) -> Result<Exit> {
    // Before the start, so that every signal is forwarded to the session.
    let mut notices = Notices::watch()?;
    let mut running = Program::from(start.clone()).begin(guest)?;
    if let Some(writer) = running.take_input() {
        tokio::spawn(feed(writer));
    }
    let session = &start.session;
    let mut asked_before = false;
    let ended = {
        let pump = pump(&mut running);
        tokio::pin!(pump);
        loop {
            tokio::select! {
                ended = &mut pump => break ended,
                notice = notices.next() => if let Notice::End(signal) = notice {
                    forward(guest, session, signal, asked_before)?;
                    asked_before = true;
                }
            }
        }
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            give_up(guest, session, holder, &error).await;
            let is_cut = matches!(error.downcast_ref(), Some(GuestError::Link(_)));
            return Err(if is_cut { error.context(CUT) } else { error });
        }
    };
    match ended {
        SessionResult::Ended(ended) => {
            let record = ended.record;
            release(guest, session, holder).await;
            // The sender of the signal knows who killed it.
            if !(asked_before && matches!(record.cause, Cause::Killed { .. })) {
                tell_end(&record, command);
            }
            Ok(Exit::of(&record))
        }
        SessionResult::Unread => {
            // As the kernel does for a program whose pipe has no reader, but certain: a program
            // that ignores SIGPIPE would write to nowhere forever.
            let kill = Signal { session: session.clone(), signal: SIGKILL, target: Target::Tree };
            let _ = guest.signal(kill).await;
            release(guest, session, holder).await;
            Ok(Exit::UNREAD)
        }
    }
}

/// Says which limits the host cannot enforce.
pub fn tell_warnings(started: &Started) {
    for warning in &started.warnings {
        output::note(&output::printable(warning));
    }
}

/// Writes all output until the record of the end arrives.
async fn pump(running: &mut Running) -> Result<SessionResult> {
    let (stdout, stderr) = (Sink::stdout()?, Sink::stderr()?);
    let mut stderr_is_read = true;
    while let Some(event) = running.next().await? {
        match event {
            Event::Started(started) => {
                tell_warnings(&started);
            }
            Event::Output { channel: Channel::Stderr, bytes, .. } => {
                if stderr_is_read {
                    stderr_is_read = stderr.write(bytes).await.is_ok();
                }
            }
            Event::Output { bytes, .. } => match stdout.write(bytes).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    return Ok(SessionResult::Unread);
                }
                Err(error) => return Err(error).context("cannot write to stdout"),
            },
            Event::Gap { .. } => {}
            Event::Ended(ended) => {
                if ended.missing_bytes > 0 {
                    output::note(&CliError::OutputMissing(ended.missing_bytes).to_string());
                }
                return Ok(SessionResult::Ended(Box::new(ended)));
            }
        }
    }
    Err(GuestError::Malformed { what: "the end of a session without its record" }.into())
}

/// Sends our stdin and its end to the program. A program may have closed its stdin already.
async fn feed(mut writer: Writer) {
    let mut input = keyboard::listen();
    while let Some(bytes) = input.recv().await {
        if writer.write(&bytes).await.is_err() {
            return;
        }
    }
    let _ = writer.finish().await;
}

/// Passes the first signal on to the program; a second one kills it.
fn forward(guest: &Guest, session: &SessionId, signal: i32, asked_before: bool) -> Result<()> {
    let (signal, target) =
        if asked_before { (SIGKILL, Target::Tree) } else { (signal, Target::Group) };
    // The answer is not awaited: the end of the session is.
    drop(guest.signal_now(Signal { session: session.clone(), signal, target })?);
    Ok(())
}

/// Gives up our hold. An agent that is gone, or has forgotten the session, holds nothing either.
pub async fn release(guest: &Guest, session: &SessionId, holder: &str) {
    let release = Release {
        session: session.clone(),
        holder: Some(holder.to_owned()),
        kill_survivors: false,
    };
    if let Err(error) = guest.release(release).await
        && error.fault_code() != Some(FaultCode::NotFound)
    {
        output::note(&format!(
            "the session was not released: {}",
            output::printable(&error.to_string())
        ));
    }
}

/// Drops our hold on a session whose program never ran: the error contains everything.
pub async fn give_up(guest: &Guest, session: &SessionId, holder: &str, error: &anyhow::Error) {
    let fault = error.downcast_ref().and_then(GuestError::fault_code);
    if fault == Some(FaultCode::SpawnFailed) {
        release(guest, session, holder).await;
    }
}

/// Prints what the exit code does not show.
pub fn tell_end(record: &ExitRecord, command: &str) {
    let (reason, left_behind) =
        (exit::explain(&record.cause, command), exit::explain_left_behind(record));
    for line in reason.iter().chain(&left_behind) {
        output::note(line);
    }
}
