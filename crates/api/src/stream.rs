//! Streams of values: lines of JSON, or the messages of a WebSocket, as the client asks.
//!
//! A task of its own sends them. It is dropped when the client is gone, and with it what it
//! holds: whether that ends a run is what the run was asked with.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::body::{Gone, Hold, NDJSON, Outgoing, Response, Sink, Streamed, counted, respond};
use super::budget::Share;
use super::call::{Call, passed};
use super::limits::{DEADLINE_WORD, STREAM_BYTES, STREAM_VALUE_BYTES};
use super::route::{Document, Output};
use super::shape::Reply;
use super::websocket::{self, CLOSE_NORMAL, Socket, Writer};
use sandbox::refusal::Refusal;

/// Where values are sent.
#[derive(Debug)]
pub struct Teller<T> {
    sink: Sink,
    memory: Share,
    values: PhantomData<fn(T)>,
}

impl<T: Serialize> Teller<T> {
    /// Sends one value. Waits while the client is slow. Where there is no memory for a large one
    /// that would wait, the stream is cut off: the client must not take a part for the whole.
    pub async fn tell(&self, value: &T) -> Result<(), Gone> {
        let mut line = serde_json::to_vec(value).map_err(|_| Gone)?;
        line.push(b'\n');
        // It may wait for long, and was made in a buffer of up to twice its size.
        line.shrink_to_fit();
        if line.len() <= STREAM_VALUE_BYTES {
            return self.sink.send(line).await;
        }
        // The value itself stays as long as its JSON waits.
        let Ok(portion) = self.memory.portion(2 * line.len()) else {
            self.sink.cut();
            return Err(Gone);
        };
        let portion: Hold = Arc::new(portion);
        self.sink.send(counted(line, portion)).await
    }
}

/// An answer that is a stream of values.
pub struct Events<T> {
    response: Response,
    values: PhantomData<fn(T)>,
}

impl<T: Serialize + Send + 'static> Events<T> {
    /// Begins a stream; `tell` runs until it is done, the client is gone, or the deadline of the
    /// call has passed, which cuts the stream off.
    pub fn begin<F, A>(call: &mut Call, tell: F) -> Result<Self, Refusal>
    where
        F: FnOnce(Teller<T>) -> A,
        A: Future<Output = ()> + Send + 'static,
    {
        let (sink, body) = Outgoing::stream(None);
        let memory = call.memory.clone();
        let teller = Teller { sink: sink.clone(), memory, values: PhantomData };
        let telling = tell(teller);
        let (permit, deadline) = (call.permit.take(), call.ends_at());
        let task = async move {
            tokio::select! {
                // The code that knows the deadline reports it first.
                biased;
                () = telling => {}
                () = sink.closed() => {}
                () = passed(deadline.map(|deadline| deadline + DEADLINE_WORD)) => sink.cut(),
            }
            drop(permit);
        };
        let response = if websocket::is_wanted(&call.headers) {
            let response = websocket::accept(call, move |socket| relay(socket, body))?;
            tokio::spawn(task);
            response
        } else {
            call.memory.grow(STREAM_BYTES)?;
            tokio::spawn(task);
            respond(StatusCode::OK, NDJSON, body)
        };
        Ok(Self { response, values: PhantomData })
    }
}

/// Brings the lines of a body to a WebSocket until either end is done.
async fn relay(socket: Socket, body: Outgoing) {
    let Outgoing::Stream(lines) = body else { return };
    let Socket { mut reader, writer } = socket;
    // What the client says is not asked for; that it is gone is.
    let gone = async { while reader.next().await.is_some() {} };
    tokio::select! {
        () = gone => {}
        () = bring(lines, writer) => {}
    }
}

/// Sends each line as a message, and closes the socket after the last.
async fn bring(mut lines: Streamed, mut writer: Writer) {
    let mut pings = websocket::ping_clock();
    loop {
        let sent = tokio::select! {
            line = lines.next() => match line {
                Some(line) => writer.text(line.slice(..line.len().saturating_sub(1))).await,
                None => return writer.close(CLOSE_NORMAL, "").await,
            },
            _ = pings.tick() => writer.ping().await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Both forms of a stream.
fn describe_values<T: JsonSchema>(document: &mut Document<'_>, about: &str) {
    let schema = document.schemas.subschema_for::<T>();
    document.answers("200", about, "application/x-ndjson", &schema);
    // A WebSocket begins with a GET.
    if *document.method == Method::GET {
        document.response(
            "101",
            serde_json::json!({ "description": "The same values as messages of a WebSocket." }),
        );
    }
}

impl<T: Serialize + JsonSchema + Send> Output for Events<T> {
    fn describe(document: &mut Document<'_>) {
        describe_values::<T>(document, "One value on each line.");
    }

    fn into_response(self) -> Response {
        self.response
    }
}

/// A value at the end, or a stream on the way there, as the client prefers.
#[expect(clippy::large_enum_variant, reason = "there is one for each call, and it is moved once")]
pub enum Either<T, E> {
    Whole(T),
    Stream(Events<E>),
}

impl<T, E> Output for Either<T, E>
where
    T: Serialize + JsonSchema + Send,
    E: Serialize + JsonSchema + Send,
{
    fn describe(document: &mut Document<'_>) {
        Reply::<T>::describe(document);
        describe_values::<E>(document, "Done.");
    }

    fn into_response(self) -> Response {
        match self {
            Self::Whole(value) => Reply(value).into_response(),
            Self::Stream(events) => events.response,
        }
    }
}
