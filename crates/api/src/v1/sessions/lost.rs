//! A session of a sandbox that is gone with its node: its output as far as it was durable, and then the truth.

use std::collections::BTreeMap;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use protocol::ExitRecord;
use protocol::message::Channel;

use super::output::{OFFSET, OutputAnswer, OutputEvent, OutputQuery, channels, output_events};
use super::{SessionInfo, SessionList};
use crate::body::{Gone, Outgoing};
use crate::call::{Call, LostLife, passed};
use crate::limits::STREAM_BYTES;
use crate::sessions::lost::{Lost, LostFeed, offsets, recorded};
use crate::sessions::{FeedEvent, SessionEnd, Start};
use crate::shape::octets;
use crate::stream::{Events, Teller};
use crate::v1::exec::Cuts;
use sandbox::refusal::{Code, Refusal};

/// Where the bytes of a session end that was lost with its node.
const LAST_DURABLE_OFFSET: HeaderName = HeaderName::from_static("burrow-last-durable-offset");

/// What follows the last byte.
#[derive(Clone)]
enum End {
    Exited(Box<ExitRecord>),
    /// The sandbox had ended before its node was gone.
    Over(String),
    Lost(Refusal),
}

pub(super) async fn list(call: &Call, life: LostLife) -> Result<SessionList, Refusal> {
    let lost = Lost::open(call, life).await?;
    let sessions = lost.history.sessions.iter().map(|known| recorded(known, &BTreeMap::new()));
    Ok(SessionList { sessions: sessions.map(SessionInfo::from).collect() })
}

pub(super) async fn get(call: &Call, life: LostLife) -> Result<SessionInfo, Refusal> {
    let lost = Lost::open(call, life).await?;
    Ok(recorded(lost.session(&call.session()?)?, &BTreeMap::new()).into())
}

pub(super) async fn read(
    mut call: Call,
    life: LostLife,
    query: OutputQuery,
) -> Result<OutputAnswer, Refusal> {
    let lost = Lost::open(&call, life).await?;
    let session = lost.session(&call.session()?)?.clone();
    let ends = lost.log.ends(&session).await?;
    let end = match (session.exit.clone(), lost.history.closed.clone()) {
        (Some(record), _) => End::Exited(Box::new(record)),
        (None, Some(why)) => End::Over(why),
        (None, None) => End::Lost(lost.refusal(&offsets(&ends))),
    };
    let wanted = channels(&query, &recorded(&session, &ends))?;
    let is_raw = call.prefers("application/octet-stream");
    if is_raw && wanted.len() != 1 {
        return Err(Refusal::invalid("a byte stream has one output: choose it with `channel`"));
    }
    let at = begins(&wanted, &ends, &end)?;
    if let End::Lost(refusal) = &end
        && at.iter().all(|(channel, at)| *at >= ends.get(channel).copied().unwrap_or(0))
    {
        return Err(refusal.clone());
    }
    let first = wanted.first().and_then(|(channel, _)| at.get(channel)).copied().unwrap_or(0);
    let feed = LostFeed::new(lost.log.outputs(&session).await?, at);
    if is_raw {
        call.memory.grow(STREAM_BYTES)?;
        let last = wanted.first().and_then(|(channel, _)| ends.get(channel)).copied();
        return bytes(feed, (first, last.unwrap_or(0)), end, &call).await;
    }
    Ok(OutputAnswer::Events(Events::begin(&mut call, |teller| async move {
        // A client that is gone needs no end.
        let _ = tell(feed, end, &teller).await;
    })?))
}

/// Where each output begins. An offset that is beyond what is durable is no mistake of the client's: it has seen more
/// before the node was gone.
fn begins(
    wanted: &[(Channel, Start)],
    ends: &BTreeMap<Channel, u64>,
    end: &End,
) -> Result<BTreeMap<Channel, u64>, Refusal> {
    let mut at = BTreeMap::new();
    let mut beyond = None;
    for (channel, start) in wanted {
        let last = ends.get(channel).copied().unwrap_or(0);
        let from = match start {
            Start::Tail(bytes) => last.saturating_sub(*bytes),
            Start::Offset(offset) => *offset,
        };
        if from > last && !matches!(end, End::Lost(_)) {
            beyond = Some((from, last));
        }
        at.insert(*channel, from);
    }
    match beyond {
        Some((offset, last)) if at.len() == 1 => {
            let message = format!("offset {offset} is beyond the end of the output at {last}");
            Err(Refusal::new(Code::RangeNotSatisfiable, message)
                .details(serde_json::json!({ "end": last })))
        }
        // A reader that resumes after the last byte of one output has all of a shorter one.
        _ => Ok(at),
    }
}

async fn tell(mut feed: LostFeed, end: End, teller: &Teller<OutputEvent>) -> Result<(), Gone> {
    let mut cuts = Cuts::default();
    let end = loop {
        match feed.next().await {
            Ok(Some(piece)) => {
                for event in output_events(&mut cuts, piece) {
                    teller.tell(&event).await?;
                }
            }
            Ok(None) => break end,
            Err(error) => break End::Lost(error.into()),
        }
    };
    let (ended, problem) = match end {
        End::Exited(record) => (SessionEnd::Known(record), None),
        End::Over(why) => (SessionEnd::Unknown { sandbox: Some(why) }, None),
        End::Lost(refusal) => (SessionEnd::default(), Some(refusal)),
    };
    let mut events = output_events(&mut cuts, FeedEvent::Ended(ended));
    if let Some(problem) = problem {
        events.pop();
        events.push(OutputEvent::Problem { problem: problem.into() });
    }
    for event in &events {
        teller.tell(event).await?;
    }
    Ok(())
}

/// Answers with bytes. Where those of a session without an end are over is known before the first is sent, and said in a
/// header.
async fn bytes(
    mut feed: LostFeed,
    (mut offset, last): (u64, u64),
    end: End,
    call: &Call,
) -> Result<OutputAnswer, Refusal> {
    let until = match &end {
        End::Lost(_) => Some(last),
        End::Exited(_) | End::Over(_) => None,
    };
    let first = loop {
        match feed.next().await? {
            Some(FeedEvent::Output { offset: at, bytes, .. }) => {
                offset = at;
                break Some(bytes);
            }
            Some(FeedEvent::Gap { to, .. }) => offset = to,
            Some(_) => {}
            None => break None,
        }
    };
    let (sink, body) = Outgoing::stream(None);
    let deadline = call.ends_at();
    tokio::spawn(async move {
        let telling = async {
            if let Some(bytes) = first {
                sink.send(bytes).await?;
            }
            loop {
                match feed.next().await {
                    Ok(Some(FeedEvent::Output { bytes, .. })) => sink.send(bytes).await?,
                    // A gap ends it.
                    Ok(_) => return Ok(()),
                    Err(_) => {
                        sink.cut();
                        return Err(Gone);
                    }
                }
            }
        };
        tokio::select! {
            _ = telling => {}
            () = sink.closed() => {}
            () = passed(deadline) => sink.cut(),
        }
    });
    let mut headers = vec![(OFFSET, HeaderValue::from(offset))];
    headers.extend(until.map(|until| (LAST_DURABLE_OFFSET, HeaderValue::from(until))));
    Ok(OutputAnswer::Bytes(octets(StatusCode::OK, body, &headers)))
}
