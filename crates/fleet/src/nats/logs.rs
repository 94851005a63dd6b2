//! Logs of output in streams: one append, the last record of a track, reading, and removal.

use std::fmt::Write;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use futures_util::StreamExt;

use super::{Link, LinkError, Place, StoreError, unavailable};
use crate::event::Outcome;
use crate::ids::{Incarnation, Name, NodeId, Revision};
use crate::limits::{ANSWER_MS, LOG_SHARDS};
use crate::track::{Draft, Form, LogId, Part, Reading, Record, Track};

/// What the streams of logs keep, and what happens when they are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    pub age_max: Duration,
    /// Of all logs together.
    pub bytes_max: u64,
    /// Whether writers wait while they are full; otherwise the oldest records go.
    pub waits: bool,
}

const OFFSET: &str = "Burrow-Offset";
const END: &str = "Burrow-End";
const NODE: &str = "Burrow-Node";
const FORM: &str = "Burrow-Form";
const GAP: &str = "gap";
const SEAL: &str = "seal";

/// Where all logs are.
const ROOT: &str = "burrow.log";

fn stream_name(shard: usize) -> String {
    format!("burrow-log-{shard}")
}

impl Link {
    /// Makes the streams of logs, or finds them and gives them these limits.
    pub async fn open_logs(&self, place: &Place, keeping: Keeping) -> Result<(), LinkError> {
        for shard in 0..LOG_SHARDS {
            let config = Config {
                name: stream_name(shard),
                subjects: vec![format!("{ROOT}.{shard}.>")],
                max_bytes: i64::try_from(keeping.bytes_max / LOG_SHARDS as u64).unwrap_or(i64::MAX),
                max_age: keeping.age_max,
                discard: if keeping.waits { DiscardPolicy::New } else { DiscardPolicy::Old },
                num_replicas: place.replicas.max(1),
                allow_direct: false,
                ..Config::default()
            };
            // Two bridges that begin at once both create it: the slower one finds it.
            let Err(made) = self.jetstream.create_or_update_stream(config).await else { continue };
            let found = self.jetstream.get_stream(stream_name(shard)).await;
            found.map_err(|_| LinkError::Logs {
                stream: stream_name(shard),
                why: made.to_string(),
            })?;
        }
        Ok(())
    }

    /// Stores a record if the one before it is the last of its track.
    pub async fn append(
        &self,
        log: &LogId,
        track: &Track,
        expected: Revision,
        draft: &Draft,
    ) -> Outcome {
        let mut message = PublishMessage::build()
            .expected_last_subject_sequence(expected.0)
            .header(OFFSET, draft.offset.to_string())
            .header(END, draft.end.to_string())
            .header(NODE, draft.node.as_str())
            .payload(draft.payload.clone());
        match draft.form {
            Form::Data => {}
            Form::Gap => message = message.header(FORM, GAP),
            Form::Seal => message = message.header(FORM, SEAL),
        }
        self.publish(subject_of(log, track), message).await
    }

    /// The last record of a track.
    pub async fn last(&self, log: &LogId, track: &Track) -> Result<Option<Record>, StoreError> {
        let subject = subject_of(log, track);
        let stream = self.log_stream(log).await?;
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => {
                let at_ms = millis(message.time.unix_timestamp_nanos());
                let revision = Revision(message.sequence);
                let record =
                    record_of(&message.subject, &message.headers, message.payload, revision, at_ms);
                record.ok_or(StoreError::Record { subject }).map(Some)
            }
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                // The streams are made when the first sandbox is durable.
                LastRawMessageErrorKind::JetStream(why)
                    if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(unavailable(error)),
            },
        }
    }

    /// Reads what a log has now, in the order in which it was stored.
    pub async fn read_log(
        &self,
        log: &LogId,
        part: &Part,
        reading: Reading,
    ) -> Result<Records, StoreError> {
        let prefix = prefix_of(log);
        let filter = match part {
            Part::All => format!("{prefix}.>"),
            Part::Lines => subject_of(log, &Track::Lines),
            Part::Outputs { session, run } => {
                format!("{prefix}.out.{}.{}.>", token(session), token(run))
            }
        };
        let config = OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            filter_subject: filter,
            deliver_policy: match reading {
                Reading::LastOfEach => DeliverPolicy::LastPerSubject,
                Reading::After(Revision(0)) => DeliverPolicy::All,
                Reading::After(Revision(last)) => {
                    DeliverPolicy::ByStartSequence { start_sequence: last + 1 }
                }
            },
            ..OrderedConfig::default()
        };
        let stream = self.log_stream(log).await?;
        let consumer = stream.create_consumer(config).await.map_err(unavailable)?;
        let left = consumer.cached_info().num_pending;
        let messages =
            if left > 0 { Some(consumer.messages().await.map_err(unavailable)?) } else { None };
        Ok(Records { messages })
    }

    /// Removes a log.
    pub async fn remove_log(&self, log: &LogId) -> Result<(), StoreError> {
        let stream = self.log_stream(log).await?;
        let filter = format!("{}.>", prefix_of(log));
        stream.purge().filter(filter).await.map(drop).map_err(unavailable)
    }

    async fn log_stream(&self, log: &LogId) -> Result<Stream<()>, StoreError> {
        let name = stream_name(log.shard());
        self.jetstream.get_stream_no_info(name).await.map_err(unavailable)
    }
}

/// Records that are read, up to the last that there was.
pub struct Records {
    messages: Option<Ordered>,
}

impl Records {
    /// `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Record>, StoreError> {
        let Some(messages) = &mut self.messages else { return Ok(None) };
        let limit = Duration::from_millis(ANSWER_MS);
        let next = tokio::time::timeout(limit, messages.next()).await.map_err(unavailable)?;
        let Some(message) = next else {
            return Err(StoreError::Unavailable(
                "the reading of a log ended before its end".into(),
            ));
        };
        let message = message.map_err(unavailable)?;
        let info = message.info().map_err(unavailable)?;
        let (revision, pending) = (Revision(info.stream_sequence), info.pending);
        let at_ms = millis(info.published.unix_timestamp_nanos());
        let subject = message.subject.to_string();
        let headers = message.headers.clone().unwrap_or_default();
        let record = record_of(&subject, &headers, message.payload.clone(), revision, at_ms);
        if pending == 0 {
            self.messages = None;
        }
        record.ok_or(StoreError::Record { subject }).map(Some)
    }
}

fn millis(nanos: i128) -> u64 {
    u64::try_from(nanos / 1_000_000).unwrap_or(0)
}

fn prefix_of(log: &LogId) -> String {
    format!("{ROOT}.{}.{}.{}", log.shard(), log.name, log.incarnation)
}

fn subject_of(log: &LogId, track: &Track) -> String {
    let prefix = prefix_of(log);
    match track {
        Track::Lines => format!("{prefix}.lines"),
        Track::Output { session, run, channel } => {
            format!("{prefix}.out.{}.{}.{}", token(session), token(run), token(channel))
        }
    }
}

/// A text as one token of a subject: what cannot be in one is written as its number.
fn token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            token.push(char::from(byte));
        } else {
            let _ = write!(token, "={byte:02x}");
        }
    }
    token
}

fn text_of(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token;
    while let Some((plain, coded)) = rest.split_once('=') {
        bytes.extend(plain.as_bytes());
        bytes.push(u8::from_str_radix(coded.get(..2)?, 16).ok()?);
        rest = coded.get(2..)?;
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

/// The log and the track of a subject.
fn place_of(subject: &str) -> Option<(LogId, Track)> {
    let tokens: Vec<_> = subject.strip_prefix(ROOT)?.strip_prefix('.')?.split('.').collect();
    let [_, namespace, name, incarnation, ref rest @ ..] = tokens[..] else { return None };
    let name = Name::parse(namespace, name).ok()?;
    let incarnation = Incarnation::try_from(incarnation.to_owned()).ok()?;
    let track = match *rest {
        ["lines"] => Track::Lines,
        ["out", session, run, channel] => Track::Output {
            session: text_of(session)?.into(),
            run: text_of(run)?.into(),
            channel: text_of(channel)?.into(),
        },
        _ => return None,
    };
    Some((LogId { name, incarnation }, track))
}

fn record_of(
    subject: &str,
    headers: &HeaderMap,
    payload: Bytes,
    revision: Revision,
    at_ms: u64,
) -> Option<Record> {
    let (_, track) = place_of(subject)?;
    let text = |name: &str| headers.get(name).map(async_nats::HeaderValue::as_str);
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let form = match text(FORM) {
        None => Form::Data,
        Some(GAP) => Form::Gap,
        Some(SEAL) => Form::Seal,
        Some(_) => return None,
    };
    let node = NodeId::parse(text(NODE)?).ok()?;
    let draft = Draft { form, offset: number(OFFSET)?, end: number(END)?, payload, node };
    Some(Record { track, revision, at_ms, draft })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_track_is_a_subject_and_comes_back() {
        let log =
            LogId { name: Name::parse("team", "web_1").unwrap(), incarnation: Incarnation(9) };
        let output = |session: &str| Track::Output {
            session: session.into(),
            run: "12-1700000000000".into(),
            channel: "stdout".into(),
        };
        for track in [Track::Lines, output("build.1"), output("a=b"), output("x*>")] {
            let subject = subject_of(&log, &track);
            assert!(!subject.contains(['*', '>', ' ']), "{subject}");
            assert_eq!(place_of(&subject), Some((log.clone(), track)));
        }
        assert_eq!(place_of("burrow.log.0.team.web"), None);
    }
}
