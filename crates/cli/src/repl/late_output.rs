//! Prints output that arrives after a run has ended, from threads and exit handlers, when the
//! context is about to close. The language's own interpreter would wait for it.

use std::time::Duration;

use anyhow::Result;
use protocol::repl::{Event, Happening, OpenContext};
use tokio::time::timeout;

use super::printer::{Printer, StdoutState};
use agent_client::guest::{Guest, GuestError, RunCode};

/// How long to listen: the agent's grace for a context that is closed, and some more.
const LISTEN_MAX: Duration = Duration::from_secs(5);

/// Closes the context, and prints its output until it is closed. The run itself has ended well
/// enough, so a guest that does not cooperate here is no failure.
pub async fn print_late_output(
    guest: &Guest,
    open: &OpenContext,
    printer: &mut Printer,
) -> Result<StdoutState> {
    match timeout(LISTEN_MAX, listen(guest, open, printer)).await {
        Ok(Err(error)) if error.is::<GuestError>() => Ok(StdoutState::Open),
        Ok(line) => line,
        Err(_) => Ok(StdoutState::Open),
    }
}

/// Late output is kept for the next run, and sent to watches. So the watch begins first, an empty
/// run takes what was kept, and what the watch gets after that run's end is the rest.
async fn listen(guest: &Guest, open: &OpenContext, printer: &mut Printer) -> Result<StdoutState> {
    let mut watch = guest.watch_context(&open.context).await?;
    let mut nothing = guest.run_code(RunCode::new(open.clone(), "")).await?;
    let number = nothing.number();
    while let Some(event) = nothing.next().await? {
        if printer.print_late(&event).await? == StdoutState::Closed {
            return Ok(StdoutState::Closed);
        }
    }
    let closing = guest.close_context(&open.context);
    tokio::pin!(closing);
    let mut closed = false;
    let mut is_read = false;
    loop {
        let event = tokio::select! {
            biased;
            event = watch.next() => event?,
            answer = &mut closing, if !closed => {
                answer?;
                closed = true;
                continue;
            }
        };
        let Some(event) = event else { return Ok(StdoutState::Open) };
        if is_read && printer.print_late(&event).await? == StdoutState::Closed {
            return Ok(StdoutState::Closed);
        }
        is_read |= is_end_of(number, &event);
    }
}

fn is_end_of(number: Option<u64>, event: &Event) -> bool {
    Some(event.run) == number && matches!(event.what, Happening::Finished(_))
}
