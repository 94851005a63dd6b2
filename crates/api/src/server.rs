//! The listening server: connections, each with its place, its pace and its end.
//!
//! ```text
//!  bind ─▶ accept ─▶ (TLS) ─▶ request, answer, request, … ─▶ closed
//!             │                      ▲ idle too long, or gives way to another
//!             └── no place: 503      └ the server ends: the calls under way have their grace
//! ```

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Api;
use super::body::{Hold, Response};
use super::dispatch::dispatch;
use super::entrance::{ClientCertificate, Entrance};
use super::limits::{ACCEPT_PAUSE, HEAD_BYTES_MAX, HEADERS_MAX, TLS_TIME_MAX, TURNED_AWAY_MAX};
use super::listen::{Accepted, Connection, Listener};
use super::pace::{PacedStream, Serving};
use super::places::{ConnectionSlot, Connections};
use super::threads::Threads;
use host::tls::Tls;
use sandbox::refusal::Code;
use settings::Listen;

/// The answer to a client for which there is no place.
const FULL: &str = "every connection is busy; try again in a moment";
/// The answer to a client that comes while the last calls are finished.
const ENDING: &str = "the server is stopping";

/// A server on one address.
pub struct Server {
    api: Api,
    listener: Listener,
    tls: Option<Arc<Tls>>,
    places: Connections,
}

impl Server {
    /// TLS is for TCP alone: a Unix socket is this user's.
    pub async fn bind(api: Api, on: &Listen, tls: Option<Arc<Tls>>) -> io::Result<Self> {
        let tls = tls.filter(|_| matches!(on, Listen::Tcp(_)));
        let places = api.places().clone();
        let server = Self { api, listener: Listener::bind(on).await?, tls, places };
        if matches!(on, Listen::Tcp(_)) {
            server.api.previews().listens_at(&server.url(), on.is_local());
        }
        Ok(server)
    }

    /// The address as a URL.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match self.listener.address() {
            Listen::Tcp(address) => format!("{scheme}://{address}"),
            on @ Listen::Unix(_) => on.to_string(),
        }
    }

    /// Serves on these threads until `ending` says so; then takes no new connections, and waits for the calls under
    /// way. Dropping the future cuts them off.
    pub async fn run(self, threads: Arc<Threads>, mut ending: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let end = ending.clone();
        let is_local = self.listener.address().is_local();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let is_tls = self.tls.is_some();
                        let entrance = Entrance { peer, is_local, is_tls };
                        let (thread, seat) = threads.seat();
                        let attending = self.attend(stream, entrance, end.clone());
                        let seated = async move {
                            attending.await;
                            drop(seat);
                        };
                        connections.spawn_on(seated, thread);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        self.places.give_way();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = has_ended(&mut ending) => break,
            }
        }
        // Until the calls under way are done, new clients get an answer that says so.
        let mut closing = JoinSet::new();
        let mut done = pin!(async {
            while connections.join_next().await.is_some() {}
            // A WebSocket outlives the request of its connection, and keeps its place.
            self.places.all_free().await;
        });
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) if self.tls.is_none() => {
                        closing.spawn(async move {
                            if let Ok(stream) = stream.begin() {
                                turn_away(stream, ENDING).await;
                            }
                        });
                    }
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                () = &mut done => break,
                Some(_) = closing.join_next() => {}
            }
        }
    }

    fn attend(
        &self,
        stream: Accepted,
        entrance: Entrance,
        ending: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (api, tls, place) = (self.api.clone(), self.tls.clone(), self.places.take());
        async move {
            // A socket that no event loop takes is as good as closed.
            let Ok(stream) = stream.begin() else { return };
            let Some(place) = place else {
                if tls.is_none() {
                    turn_away(stream, FULL).await;
                }
                return;
            };
            let Some(tls) = tls else {
                return serve(api, stream, (entrance, None), place, ending).await;
            };
            let (acceptor, trouble) = tls.acceptor();
            if let Some(error) = trouble {
                tracing::warn!(%error, "the changed certificate cannot be used");
            }
            if let Ok(Ok(stream)) = timeout(TLS_TIME_MAX, acceptor.accept(stream)).await {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
                let shown = shown.map(|one| ClientCertificate(Arc::new(one.into_owned())));
                serve(api, Box::new(stream), (entrance, shown), place, ending).await;
            }
        }
    }
}

/// Tells a client why it is not served, whatever it asks for. What it has sent is read, because a
/// connection that is closed over unread bytes takes the answer with it.
async fn turn_away(mut stream: Box<dyn Connection>, why: &str) {
    let telling = async {
        stream.write_all(refusal(why).as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(HEAD_BYTES_MAX as u64), &mut tokio::io::sink()).await
    };
    // Best effort: a client that does not listen has not been kept waiting either.
    let _ = timeout(TURNED_AWAY_MAX, telling).await;
}

fn refusal(why: &str) -> String {
    let body = serde_json::json!({ "code": Code::Unavailable, "message": why }).to_string();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers the requests of one connection.
async fn serve(
    api: Api,
    stream: Box<dyn Connection>,
    (entrance, shown): (Entrance, Option<ClientCertificate>),
    place: ConnectionSlot,
    mut ending: watch::Receiver<bool>,
) {
    let limits = api.limits().clone();
    let serving = Serving::default();
    let io = TokioIo::new(PacedStream::new(stream, serving.clone(), limits.head_time_max));
    let place = Arc::new(place);
    let at_work = Arc::clone(&place);
    let pace = serving.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(shown) = &shown {
            request.extensions_mut().insert(shown.clone());
        }
        let busy: Hold = Arc::new(BusyConnection::begin(&at_work, &serving));
        let api = api.clone();
        async move {
            let mut response = dispatch(&api, request, entrance, Arc::clone(&busy)).await;
            response.body_mut().hold(busy);
            Ok::<Response, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.connection_idle_max)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut leaving = false;
    loop {
        tokio::select! {
            // An error of one connection concerns that client alone.
            _ = connection.as_mut() => return,
            () = place.must_leave(), if !leaving => {}
            () = has_ended(&mut ending), if !leaving => {}
        }
        leaving = true;
        pace.leave();
        connection.as_mut().graceful_shutdown();
    }
}

/// Resolves when the server ends.
async fn has_ended(ending: &mut watch::Receiver<bool>) {
    // The sender is gone: that is an end too.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// Marks a connection as busy while a call is under way, its streams and sockets included.
struct BusyConnection {
    place: Arc<ConnectionSlot>,
    serving: Serving,
}

impl BusyConnection {
    fn begin(place: &Arc<ConnectionSlot>, serving: &Serving) -> Self {
        serving.set(true);
        place.set_idle(false);
        Self { place: Arc::clone(place), serving: serving.clone() }
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.serving.set(false);
        self.place.set_idle(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_place_gets_a_complete_http_answer() {
        let response = refusal(FULL);
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<crate::forms::problem::Problem>(body).unwrap();
    }
}
