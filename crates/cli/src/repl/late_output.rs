//! Prints output that arrives after a run has ended, from threads and exit handlers, when the
//! context is about to close. The language's own interpreter would wait for it.

use std::time::Duration;

use anyhow::Result;
use protocol::repl::{Event, Happening, OpenContext};
use tokio::time::timeout;

use super::printer::{Printer, StdoutState};
use agent_client::guest::{Guest, GuestError, RunCode};

/// How long it is listened to: what the agent grants a context that is closed, and some more.
const LISTEN_MAX: Duration = Duration::from_secs(5);

/// Closes the context, and tells what is said until it is closed. The run itself has ended well
/// enough, so a guest that does not play along here is no failure.
pub async fn print_late_output(
    guest: &Guest,
    open: &OpenContext,
    printer: &mut Printer,
) -> Result<StdoutState> {
    match timeout(LISTEN_MAX, listen(guest, open, printer)).await {
        Ok(Err(error)) if error.is::<GuestError>() => Ok(StdoutState::Open),
        Ok(told) => told,
        Err(_) => Ok(StdoutState::Open),
    }
}

/// Late output is kept for the next run, and told to whoever watches. So the watch begins first, a
/// run of nothing takes what was kept, and what the watch hears behind that run's end is the rest.
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
    let mut heard = false;
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
        if heard && printer.print_late(&event).await? == StdoutState::Closed {
            return Ok(StdoutState::Closed);
        }
        heard |= is_end_of(number, &event);
    }
}

fn is_end_of(number: Option<u64>, event: &Event) -> bool {
    Some(event.run) == number && matches!(event.what, Happening::Finished(_))
}
