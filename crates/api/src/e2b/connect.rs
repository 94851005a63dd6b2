//! Connect's protocol with JSON: one message as a body, or a stream of messages in envelopes.
//!
//! ```text
//!  envelope = flags (1 byte) length (4 bytes, big-endian) JSON
//!  the last one of a stream of answers has flag 2, and says what went wrong if anything did
//! ```

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::codes::{connect_code, words};
use super::limits::{KEEPALIVE_DEFAULT, MESSAGE_BYTES_MAX};
use crate::body::{Gone, Hold, Outgoing, Received, Response, Sink, json_response, respond};
use crate::call::Call;
use crate::limits::STREAM_BYTES;
use crate::route::{Document, Input};
use crate::shape::Raw;
use sandbox::refusal::Refusal;

pub const STREAM: HeaderValue = HeaderValue::from_static("application/connect+json");

const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
const KEEPALIVE: HeaderName = HeaderName::from_static("keepalive-ping-interval");

const HEAD_BYTES: usize = 5;
/// The flag of a stream's last envelope.
const END: u8 = 2;

/// The one message of a call, whose unknown fields are passed over.
pub struct Message<T>(pub T);

/// The same in an envelope.
pub struct Enveloped<T>(pub T);

impl<T: DeserializeOwned + Send> Input for Message<T> {
    fn describe(_: &mut Document<'_>) {}

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        let body = call.read_body().await?;
        parse(if body.is_empty() { b"{}" } else { &body }).map(Self)
    }
}

impl<T: DeserializeOwned + Send> Input for Enveloped<T> {
    fn describe(_: &mut Document<'_>) {}

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        let body = call.read_body().await?;
        let mut envelopes = Envelopes { buffered: BytesMut::from(&body[..]) };
        match envelopes.take()? {
            Some(message) => parse(&message).map(Self),
            None => Err(Refusal::invalid("the body is not one whole message")),
        }
    }
}

pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::invalid(format!("invalid message: {error}")))
}

/// Messages as they arrive.
#[derive(Default)]
pub struct Envelopes {
    buffered: BytesMut,
}

impl Envelopes {
    /// The next message of a body; `None` at its end.
    pub async fn next(&mut self, body: &mut Received) -> Result<Option<Bytes>, Refusal> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match body.chunk().await? {
                Some(bytes) => self.buffered.extend_from_slice(&bytes),
                None if self.buffered.is_empty() => return Ok(None),
                None => return Err(Refusal::invalid("the body ends within a message")),
            }
        }
    }

    fn take(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(head) = self.buffered.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [flags, length @ ..] = *head;
        if flags != 0 {
            return Err(Refusal::invalid("compressed messages are not taken"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(crate::body::too_large(MESSAGE_BYTES_MAX as u64));
        }
        if self.buffered.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.buffered.advance(HEAD_BYTES);
        Ok(Some(self.buffered.split_to(length).freeze()))
    }
}

fn envelope(flags: u8, message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + message.len());
    bytes.extend_from_slice(&[flags]);
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes.freeze()
}

/// The end of a stream of answers.
pub fn end_envelope(problem: Option<&Refusal>) -> Bytes {
    let end = match problem {
        None => json!({}),
        Some(problem) => {
            let (code, _) = connect_code(problem.code);
            json!({ "error": { "code": code, "message": words(problem) } })
        }
    };
    envelope(END, end.to_string().as_bytes())
}

/// An answer of one message.
pub fn done(answer: &Value) -> Raw {
    Raw(json_response(StatusCode::OK, answer))
}

/// Where the messages of an answer are sent.
pub struct Messages(Sink);

impl Messages {
    pub async fn send(&self, message: &impl Serialize) -> Result<(), Gone> {
        let bytes = serde_json::to_vec(message).map_err(|_| Gone)?;
        self.0.send(envelope(0, &bytes)).await
    }
}

/// Answers with a stream; `tell` runs until it is done or the client is gone, and says what went wrong.
pub fn stream<F, A>(call: &mut Call, tell: F) -> Result<Response, Refusal>
where
    F: FnOnce(Messages) -> A,
    A: Future<Output = Result<(), Refusal>> + Send + 'static,
{
    let (sink, body) = Outgoing::stream(None);
    call.memory.grow(STREAM_BYTES)?;
    let held: Hold = Arc::new((call.permit.take(), call.memory.clone(), call.trail.clone()));
    let telling = tell(Messages(sink.clone()));
    tokio::spawn(async move {
        let told = tokio::select! {
            told = telling => told,
            () = sink.closed() => return,
        };
        // A client that is gone by now misses nothing.
        let _ = sink.send(end_envelope(told.err().as_ref())).await;
        drop(held);
    });
    Ok(respond(StatusCode::OK, STREAM, body))
}

/// How long the client gives its call.
pub fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    number(headers, &TIMEOUT).map(|millis| millis.map(Duration::from_millis))
}

/// How long a stream may be silent.
pub fn keepalive(headers: &HeaderMap) -> Result<Duration, Refusal> {
    let seconds = number(headers, &KEEPALIVE)?;
    Ok(seconds.map_or(KEEPALIVE_DEFAULT, |seconds| Duration::from_secs(seconds.clamp(1, 3600))))
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| Refusal::invalid(format!("{name} must be a whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_wherever_their_bytes_are_cut() {
        let sent = [envelope(0, b"{}"), envelope(0, br#"{"a":1}"#)].concat();
        for cut in 0..=sent.len() {
            let mut envelopes = Envelopes::default();
            let mut found = Vec::new();
            for piece in [&sent[..cut], &sent[cut..]] {
                envelopes.buffered.extend_from_slice(piece);
                while let Some(message) = envelopes.take().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"{}"[..], br#"{"a":1}"#]);
            assert!(envelopes.buffered.is_empty());
        }
    }

    #[test]
    fn what_is_too_long_or_compressed_is_refused_by_its_head() {
        for head in [[1, 0, 0, 0, 0], [0, 0xFF, 0, 0, 0]] {
            let mut envelopes = Envelopes { buffered: BytesMut::from(&head[..]) };
            assert!(envelopes.take().is_err());
        }
    }
}
