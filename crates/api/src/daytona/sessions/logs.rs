//! What a command has written: all of it at once, or followed over a WebSocket.
//!
//! A message of the WebSocket begins with three bytes that say which output it is of.

use bytes::Bytes;
use protocol::Cause;
use protocol::message::Channel;
use serde_json::{Value, json};

use crate::body::{Gone, Response};
use crate::call::Call;
use crate::daytona::limits::OUTPUT_BYTES_MAX;
use crate::forms::exit::{add_met_limit, met_limit};
use crate::sessions::{Feed, FeedEvent, FoundSession, SessionEnd, Start};
use crate::websocket::{self, CLOSE_NORMAL, Reader, Socket, Writer, ping_clock};
use agent_client::program::Head;
use sandbox::refusal::Refusal;

const STDOUT: [u8; 3] = [1; 3];
const STDERR: [u8; 3] = [2; 3];

/// The beginning of each output, and of both in the order in which they have come.
pub struct Logs {
    stdout: Head,
    stderr: Head,
    output: Head,
    /// Missing while it runs, and where nobody knows.
    ended: Option<Cause>,
}

impl Logs {
    pub fn shown(&self) -> Value {
        let text = |head: &Head| head.clone().into_text();
        let with_end = |head: &Head| {
            let mut text = text(head);
            if let Some(cause) = &self.ended {
                add_met_limit(&mut text, cause);
            }
            text
        };
        json!({
            "output": with_end(&self.output),
            "stdout": text(&self.stdout),
            "stderr": with_end(&self.stderr),
        })
    }

    /// Missing while it runs, and where nobody knows.
    pub fn exit_code(&self) -> Option<i32> {
        self.ended.as_ref().map(Cause::shell_code)
    }
}

async fn feed(call: &Call, found: FoundSession, follows: bool) -> Result<Feed, Refusal> {
    let channels: Vec<_> =
        found.session.channels().iter().map(|channel| (*channel, Start::Offset(0))).collect();
    Feed::open(&call.api, found, &channels, follows, &call.memory).await
}

/// Reads what there is, or all until the end.
pub async fn gather(call: &Call, found: FoundSession, to_the_end: bool) -> Result<Logs, Refusal> {
    let mut feed = feed(call, found, to_the_end).await?;
    let head = || Head::new(OUTPUT_BYTES_MAX);
    let mut logs = Logs { stdout: head(), stderr: head(), output: head(), ended: None };
    while let Some(event) = feed.next().await {
        match event {
            FeedEvent::Output { channel, bytes, .. } => {
                let own =
                    if channel == Channel::Stderr { &mut logs.stderr } else { &mut logs.stdout };
                own.add(&bytes, &call.memory);
                logs.output.add(&bytes, &call.memory);
            }
            FeedEvent::Gap { channel, from, to } => {
                let own =
                    if channel == Channel::Stderr { &mut logs.stderr } else { &mut logs.stdout };
                own.lose(to - from);
                logs.output.lose(to - from);
            }
            FeedEvent::Ended(SessionEnd::Known(record)) => {
                logs.ended = Some(record.cause);
            }
            FeedEvent::Ended(SessionEnd::Unknown { .. })
            | FeedEvent::Running
            | FeedEvent::Waiting => {}
        }
    }
    Ok(logs)
}

/// Sends what there is and what comes, at the pace of the client.
pub async fn follow(call: &mut Call, found: FoundSession) -> Result<Response, Refusal> {
    let feed = feed(call, found, true).await?;
    websocket::accept(call, move |socket| async move {
        let Socket { reader, writer } = socket;
        tokio::select! {
            () = until_gone(reader) => {}
            _ = speak(feed, writer) => {}
        }
    })
}

/// What the client says means nothing; that it is gone does.
async fn until_gone(mut reader: Reader) {
    while reader.next().await.is_some() {}
}

async fn speak(mut feed: Feed, mut writer: Writer) -> Result<(), Gone> {
    let mut pings = ping_clock();
    loop {
        let event = tokio::select! {
            event = feed.next() => event,
            _ = pings.tick() => {
                writer.ping().await?;
                continue;
            }
        };
        match event {
            Some(FeedEvent::Output { channel, bytes, .. }) => {
                writer.binary(marked(channel, &bytes)).await?;
            }
            Some(FeedEvent::Gap { channel, from, to }) => {
                let words = format!("\n[{} bytes of output no longer exist]\n", to - from);
                writer.binary(marked(channel, words.as_bytes())).await?;
            }
            Some(FeedEvent::Waiting) => {}
            end @ (Some(FeedEvent::Ended(_) | FeedEvent::Running) | None) => {
                if let Some(FeedEvent::Ended(SessionEnd::Known(record))) = end
                    && let Some(words) = met_limit(&record.cause)
                {
                    let line = format!("\n[{words}]\n");
                    writer.binary(marked(Channel::Stderr, line.as_bytes())).await?;
                }
                writer.close(CLOSE_NORMAL, "").await;
                return Ok(());
            }
        }
    }
}

fn marked(channel: Channel, bytes: &[u8]) -> Bytes {
    let mark = if channel == Channel::Stderr { STDERR } else { STDOUT };
    [&mark[..], bytes].concat().into()
}
