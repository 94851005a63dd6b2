//! A session's output, as events or as raw bytes.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use protocol::message::Channel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::body::{Gone, Outgoing, Response};
use crate::call::{Call, passed};
use crate::forms::exit::Exit;
use crate::forms::problem::Problem;
use crate::limits::STREAM_BYTES;
use crate::route::{Document, Output};
use crate::sessions::{Feed, FeedEvent, Session, SessionEnd, Start, find};
use crate::shape::{Nothing, Query, Raw, octets};
use crate::stream::Events;
use crate::v1::exec::{ChannelName, Cuts};
use crate::v1::value::Content;
use sandbox::refusal::Refusal;

/// Where in its output an answer of bytes begins.
pub const OFFSET: HeaderName = HeaderName::from_static("burrow-offset");

pub const ABOUT: &str = "The answer is a stream of events, one per line or WebSocket message. Each \
`output` has the offset where it begins. A client that lost the connection asks again `from` the \
byte after the last one that it got, and misses nothing: output that the agent no longer holds is \
read from the sandbox's log, and output that has been rotated out of the log comes as a `gap`. A \
slow reader holds nobody up. The last event is `exited`, `over` or, without `follow`, \
`running`. Of a sandbox that is gone with its node, the events are read from the fleet's log, as far as \
its `durability` has brought them there; the last is then `exited`, `over` or a `problem`.\n\nWith `Accept: application/octet-stream` the answer is the bytes of one output, and \
the header `burrow-offset` has the offset where they begin. A gap ends such an answer. Of a session \
without an end in a sandbox that is gone with its node, `burrow-last-durable-offset` has the offset where \
they are over.";

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// Which output; all by default.
    #[serde(default)]
    #[schemars(with = "ChannelName")]
    pub channel: Option<ChannelName>,
    /// The first byte of each output to send; 0 by default.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub from: Option<u64>,
    /// The first byte of stderr, if it differs.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub stderr_from: Option<u64>,
    /// At most this many of the newest bytes of each output.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub tail: Option<u64>,
    /// Continue until the session ends.
    #[serde(default)]
    pub follow: bool,
}

/// An event of a session's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputEvent {
    Output {
        channel: ChannelName,
        /// The offset in the output where it begins, in bytes.
        offset: u64,
        #[serde(flatten)]
        content: Content,
    },
    /// Output that no longer exists.
    Gap { channel: ChannelName, from: u64, to: u64 },
    /// The program ended, and this was all of its output.
    Exited { exit: Exit },
    /// The sandbox ended, and this was all that is known of the output.
    Over {
        /// What its record says of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        sandbox: Option<String>,
    },
    /// This was all output so far, and the program still runs.
    Running {},
    /// There is more, which waits until the fleet's log has it, under `durability` = `sync`. It comes when it has.
    Waiting {},
    /// The output ends here for this reason. With the code `gone`, this was all that outlived the sandbox's node, and
    /// `details` has `node`, `at_ms` and the `last_durable_offset` of each channel.
    Problem { problem: Problem },
}

/// Events, or bytes.
pub enum OutputAnswer {
    Events(Events<OutputEvent>),
    Bytes(Raw),
}

impl Output for OutputAnswer {
    fn describe(document: &mut Document<'_>) {
        Events::<OutputEvent>::describe(document);
        Raw::describe(document);
    }

    fn into_response(self) -> Response {
        match self {
            Self::Events(events) => events.into_response(),
            Self::Bytes(raw) => raw.into_response(),
        }
    }
}

pub async fn read(
    mut call: Call,
    Query(query): Query<OutputQuery>,
    _: Nothing,
) -> Result<OutputAnswer, Refusal> {
    let found = find(&call, &call.which()?, &call.session()?).await?;
    let channels = channels(&query, &found.session)?;
    let is_raw = call.prefers("application/octet-stream");
    if is_raw && channels.len() != 1 {
        return Err(Refusal::invalid("a byte stream has one output: choose it with `channel`"));
    }
    let feed = Feed::open(&call.api, found, &channels, query.follow, &call.memory).await?;
    if is_raw {
        call.memory.grow(STREAM_BYTES)?;
        return Ok(OutputAnswer::Bytes(bytes(feed, call.ends_at()).await));
    }
    Ok(OutputAnswer::Events(events(&mut call, feed)?))
}

/// Which outputs, and where each begins.
pub(super) fn channels(
    query: &OutputQuery,
    session: &Session,
) -> Result<Vec<(Channel, Start)>, Refusal> {
    let has = session.channels();
    let wanted: Vec<Channel> = match query.channel.map(Channel::from) {
        None => has.to_vec(),
        Some(channel) if has.contains(&channel) => vec![channel],
        Some(channel) => {
            let message = format!("session {} has no {}", session.id(), channel.name());
            let names: Vec<_> = has.iter().map(|channel| channel.name()).collect();
            return Err(Refusal::invalid(message).hint(format!("it has {}", names.join(", "))));
        }
    };
    if query.tail.is_some() && (query.from.is_some() || query.stderr_from.is_some()) {
        return Err(Refusal::invalid("`from` and `tail` exclude each other"));
    }
    let start = |channel: Channel| match (query.tail, channel) {
        (Some(bytes), _) => Start::Tail(bytes),
        (None, Channel::Stderr) => {
            Start::Offset(query.stderr_from.or(query.from).unwrap_or_default())
        }
        (None, _) => Start::Offset(query.from.unwrap_or_default()),
    };
    Ok(wanted.into_iter().map(|channel| (channel, start(channel))).collect())
}

fn events(call: &mut Call, mut feed: Feed) -> Result<Events<OutputEvent>, Refusal> {
    Events::begin(call, |teller| async move {
        let mut cuts = Cuts::default();
        while let Some(piece) = feed.next().await {
            for event in output_events(&mut cuts, piece) {
                if teller.tell(&event).await.is_err() {
                    return;
                }
            }
        }
    })
}

/// A piece of a feed as events, without characters that are cut.
pub fn output_events(cuts: &mut Cuts, piece: FeedEvent) -> Vec<OutputEvent> {
    let output = |channel: Channel, piece: Option<(u64, Content)>| {
        piece.map(|(offset, content)| OutputEvent::Output {
            channel: channel.into(),
            offset,
            content,
        })
    };
    let (mut events, last) = match piece {
        FeedEvent::Output { channel, offset, bytes } => {
            let piece = cuts.take(channel, offset, bytes);
            (output(channel, piece).into_iter().collect::<Vec<_>>(), None)
        }
        FeedEvent::Gap { channel, from, to } => {
            let rest = output(channel, cuts.finish(channel));
            let gap = OutputEvent::Gap { channel: channel.into(), from, to };
            (rest.into_iter().collect(), Some(gap))
        }
        FeedEvent::Waiting => (Vec::new(), Some(OutputEvent::Waiting {})),
        FeedEvent::Ended(_) | FeedEvent::Running => {
            let all = [Channel::Stdout, Channel::Stderr, Channel::Terminal];
            let rest = all.into_iter().filter_map(|channel| output(channel, cuts.finish(channel)));
            let last = match piece {
                FeedEvent::Ended(SessionEnd::Known(record)) => {
                    OutputEvent::Exited { exit: (*record).into() }
                }
                FeedEvent::Ended(SessionEnd::Unknown { sandbox }) => OutputEvent::Over { sandbox },
                _ => OutputEvent::Running {},
            };
            (rest.collect(), Some(last))
        }
    };
    events.extend(last);
    events
}

/// Answers with bytes. Where they begin must be known before the first is sent, so it is waited for.
async fn bytes(mut feed: Feed, deadline: Option<Instant>) -> Raw {
    let mut offset = feed.begins_at();
    let first = loop {
        match feed.next().await {
            Some(FeedEvent::Output { offset: at, bytes, .. }) => {
                offset = at;
                break Some(bytes);
            }
            Some(FeedEvent::Gap { to, .. }) => offset = to,
            Some(FeedEvent::Waiting) => {}
            Some(FeedEvent::Ended(_) | FeedEvent::Running) | None => break None,
        }
    };
    let (sink, body) = Outgoing::stream(None);
    tokio::spawn(async move {
        let telling = async {
            if let Some(bytes) = first {
                sink.send(bytes).await?;
            }
            loop {
                match feed.next().await {
                    Some(FeedEvent::Output { bytes, .. }) => sink.send(bytes).await?,
                    Some(FeedEvent::Waiting) => {}
                    _ => break,
                }
            }
            Ok::<_, Gone>(())
        };
        tokio::select! {
            _ = telling => {}
            () = sink.closed() => {}
            () = passed(deadline) => sink.cut(),
        }
    });
    let offset = HeaderValue::from(offset);
    octets(StatusCode::OK, body, &[(OFFSET, offset)])
}
