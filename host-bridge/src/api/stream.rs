//! Streams of values: lines of JSON, or the messages of a WebSocket, as the client asks.
//!
//! What tells them is a task of its own. It is dropped when the client is gone, and with it what it
//! holds: whether that ends a run is what the run was asked with.

use std::future::Future;
use std::marker::PhantomData;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::body::{Gone, NDJSON, Outgoing, Response, Sink, respond};
use super::call::Call;
use super::problem::Problem;
use super::route::{Document, Output};
use super::shape::Reply;
use super::websocket::{self, CLOSE_NORMAL, Socket};

/// Where values are told.
#[derive(Debug)]
pub struct Teller<T> {
    sink: Sink,
    values: PhantomData<fn(T)>,
}

impl<T: Serialize> Teller<T> {
    /// Tells one value. Waits as long as the client is slow.
    pub async fn tell(&self, value: &T) -> Result<(), Gone> {
        let mut line = serde_json::to_vec(value).map_err(|_| Gone)?;
        line.push(b'\n');
        self.sink.send(line).await
    }
}

/// An answer that is a stream of values.
pub struct Events<T> {
    response: Response,
    values: PhantomData<fn(T)>,
}

impl<T: Serialize + Send + 'static> Events<T> {
    /// Begins a stream; `tell` runs until it is done or the client is gone.
    pub fn begin<F, A>(call: &mut Call, tell: F) -> Result<Self, Problem>
    where
        F: FnOnce(Teller<T>) -> A,
        A: Future<Output = ()> + Send + 'static,
    {
        let (sink, body) = Outgoing::stream(None);
        let teller = Teller { sink: sink.clone(), values: PhantomData };
        let telling = tell(teller);
        let permit = call.permit.take();
        let task = async move {
            tokio::select! {
                () = telling => {}
                () = sink.closed() => {}
            }
            drop(permit);
        };
        let response = if websocket::is_wanted(&call.headers) {
            let response = websocket::accept(call, move |socket| relay(socket, body))?;
            tokio::spawn(task);
            response
        } else {
            tokio::spawn(task);
            respond(StatusCode::OK, NDJSON, body)
        };
        Ok(Self { response, values: PhantomData })
    }
}

/// Brings the lines of a body to a WebSocket, each as a message, until either end is done.
async fn relay(socket: Socket, body: Outgoing) {
    let Outgoing::Stream(mut lines) = body else { return };
    let Socket { mut reader, mut writer } = socket;
    let mut pings = websocket::ping_clock();
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Some(line) => {
                    let text = line.slice(..line.len().saturating_sub(1));
                    if writer.text(text).await.is_err() {
                        return;
                    }
                }
                None => return writer.close(CLOSE_NORMAL, "").await,
            },
            // What the client says is not asked for; that it is gone is.
            said = reader.next() => if said.is_none() { return },
            _ = pings.tick() => {
                if reader.is_silent() || writer.ping().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl<T: Serialize + JsonSchema + Send> Output for Events<T> {
    fn describe(document: &mut Document<'_>) {
        let schema = document.schemas.subschema_for::<T>();
        document.answers("200", "One value on each line.", "application/x-ndjson", &schema);
        document.response(
            "101",
            serde_json::json!({ "description": "The same values as messages of a WebSocket." }),
        );
    }

    fn into_response(self) -> Response {
        self.response
    }
}

/// A value at the end, or a stream on the way there, as the client prefers.
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
        let schema = document.schemas.subschema_for::<E>();
        document.answers("200", "Done.", "application/x-ndjson", &schema);
    }

    fn into_response(self) -> Response {
        match self {
            Self::Whole(value) => Reply(value).into_response(),
            Self::Stream(events) => events.response,
        }
    }
}
