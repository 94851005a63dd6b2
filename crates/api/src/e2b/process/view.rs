//! A program as a viewer sees it: its process number, its output, its end.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use protocol::exit::Cause;
use protocol::message::Channel;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::body::{Gone, Response};
use crate::call::{Call, passed};
use crate::e2b::answer::gone;
use crate::e2b::connect::{Messages, keepalive, stream};
use crate::forms::exit::met_limit;
use crate::sessions::{Feed, FeedEvent, FoundSession, SessionEnd, Start};
use sandbox::refusal::{Code, Refusal};

/// Answers with all output of a program, the earlier first. At the end of `limit` the viewer is let go, and the
/// program goes on.
pub async fn view(
    call: &mut Call,
    found: FoundSession,
    pid: u32,
    limit: Option<Duration>,
) -> Result<Response, Refusal> {
    let channels: Vec<_> =
        found.session.channels().iter().map(|channel| (*channel, Start::Offset(0))).collect();
    let pause = keepalive(&call.headers)?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let feed = Feed::open(&call.api, found, &channels, true, &call.memory).await?;
    stream(call, move |messages| async move {
        // A client that is gone needs no reason.
        follow(feed, pid, &messages, pause, deadline).await.unwrap_or(Ok(()))
    })
}

async fn follow(
    mut feed: Feed,
    pid: u32,
    messages: &Messages,
    pause: Duration,
    deadline: Option<Instant>,
) -> Result<Result<(), Refusal>, Gone> {
    messages.send(&event("start", &json!({ "pid": pid }))).await?;
    loop {
        let said = tokio::select! {
            said = feed.next() => said,
            () = sleep(pause) => {
                messages.send(&event("keepalive", &json!({}))).await?;
                continue;
            }
            () = passed(deadline) => {
                let message = "the time of this call is over; the process goes on";
                return Ok(Err(Refusal::new(Code::DeadlineExceeded, message)));
            }
        };
        match said {
            Some(FeedEvent::Output { channel, bytes, .. }) => {
                messages.send(&data(channel, &bytes)).await?;
            }
            Some(FeedEvent::Gap { channel, from, to }) => {
                let words = format!("\n[{} bytes of output no longer exist]\n", to - from);
                messages.send(&data(channel, words.as_bytes())).await?;
            }
            // `keepalive` says enough.
            Some(FeedEvent::Waiting) => {}
            Some(FeedEvent::Ended(SessionEnd::Known(record))) => {
                return match end(&record.cause) {
                    Ok(end) => messages.send(&event("end", &end)).await.map(Ok),
                    Err(refusal) => Ok(Err(refusal)),
                };
            }
            Some(FeedEvent::Ended(SessionEnd::Unknown { .. }) | FeedEvent::Running) | None => {
                return Ok(Err(Refusal { code: Code::Unavailable, ..gone("it ended") }));
            }
        }
    }
}

fn event(kind: &str, value: &Value) -> Value {
    json!({ "event": { kind: value } })
}

fn data(channel: Channel, bytes: &[u8]) -> Value {
    let name = match channel {
        Channel::Stdout => "stdout",
        Channel::Stderr => "stderr",
        Channel::Terminal => "pty",
    };
    event("data", &json!({ name: STANDARD.encode(bytes) }))
}

/// How a program ended, as envd says it.
fn end(cause: &Cause) -> Result<Value, Refusal> {
    let signal = match cause {
        Cause::Exited { code: 0 } => {
            return Ok(json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }));
        }
        Cause::Exited { code } => {
            let status = format!("exit status {code}");
            return Ok(json!({
                "exitCode": code, "exited": true, "status": status, "error": status
            }));
        }
        Cause::TimedOut { limit_ms } => {
            let message = format!("the process was killed after {limit_ms} ms, its whole time");
            return Err(Refusal::new(Code::DeadlineExceeded, message));
        }
        Cause::SpawnFailed { .. } => {
            return Err(Refusal::invalid("the program could not be started"));
        }
        Cause::Signaled { signal, .. } | Cause::Killed { signal, .. } => *signal,
        Cause::OutOfMemory { .. } | Cause::AgentStopping => nix::libc::SIGKILL,
    };
    let status = format!("signal: {}", word(signal));
    let error = met_limit(cause).unwrap_or_else(|| status.clone());
    Ok(json!({ "exitCode": -1, "exited": false, "status": status, "error": error }))
}

/// The words that Go has for a signal.
fn word(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(Signal::SIGKILL) => "killed".to_owned(),
        Ok(Signal::SIGTERM) => "terminated".to_owned(),
        Ok(Signal::SIGINT) => "interrupt".to_owned(),
        Ok(Signal::SIGHUP) => "hangup".to_owned(),
        Ok(Signal::SIGSEGV) => "segmentation fault".to_owned(),
        Ok(Signal::SIGABRT) => "aborted".to_owned(),
        Ok(other) => other.as_str().trim_start_matches("SIG").to_lowercase(),
        Err(_) => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_for_want_of_memory_has_its_limit() {
        let ended = end(&Cause::OutOfMemory { limit_bytes: Some(64 << 20) }).unwrap();
        let error = "the program ran out of memory, with a limit of 64 MiB";
        assert_eq!((&ended["status"], &ended["error"]), (&json!("signal: killed"), &json!(error)));
        let killed = end(&Cause::Signaled { signal: 9, core_dumped: false }).unwrap();
        assert_eq!(killed["error"], "signal: killed");
    }
}
