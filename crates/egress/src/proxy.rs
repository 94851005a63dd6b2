//! The HTTP proxy for programs that are configured to use one. It accepts `CONNECT` and requests with
//! absolute URLs under the same rules. Each connection carries one request, or becomes a tunnel.

use std::sync::Arc;

use tokio::time::timeout;

use super::Shared;
use super::carry::{Plan, Stream};
use super::connection::{Refusal, answer_with, lead, reach, run};
use super::event::EventSubject;
use super::host::Host;
use super::http::{BadRequest, Head, Requests, authority};
use super::limits::{FIRST_BYTES_DEADLINE, HEAD_BYTES_MAX};

const HTTP_PORT: u16 = 80;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The host in events where the target is unknown.
pub(super) const THE_PROXY: &str = "the proxy";

/// Serves one client to its end.
pub(super) async fn serve(shared: &Arc<Shared>, mut stream: Stream) {
    let head = timeout(FIRST_BYTES_DEADLINE, read_head(&mut stream)).await;
    let head = head.unwrap_or(Err(Refusal::Silent));
    let parsed = head.and_then(|head| Ok((whom(&head)?, head)));
    let ((host, port), head) = match parsed {
        Ok(parsed) => parsed,
        Err(refused) => return refuse(shared, THE_PROXY, None, stream, &refused).await,
    };
    let refused = if head.method == "CONNECT" {
        match tunnel(shared, &host, port, &mut stream).await {
            Ok(()) => return lead(shared, &host, port, stream).await,
            Err(refused) => refused,
        }
    } else {
        match request(&host, port, &head, &mut stream) {
            Ok(plan) => match reach(shared, &host, port).await {
                Ok(way) => return run(shared, &host, port, stream, plan, way).await,
                Err(refused) => refused,
            },
            Err(refused) => refused,
        }
    };
    refuse(shared, host.as_str(), Some(port), stream, &refused).await;
}

async fn refuse(shared: &Shared, host: &str, port: Option<u16>, stream: Stream, refused: &Refusal) {
    shared.reporter.refuse(EventSubject::Connection, host, port, refused);
    let word = match refused {
        Refusal::Connect(_) => answer_with(502, "Bad Gateway", refused),
        _ => answer_with(403, "Forbidden", refused),
    };
    stream.part(&word).await;
}

async fn read_head(stream: &mut Stream) -> Result<Head, Refusal> {
    // How far the input was searched, except for an end that may begin there.
    let mut from = 0;
    loop {
        let held = stream.held();
        let end = held[from..].windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD);
        if let Some(end) = end.map(|at| from + at + END_OF_HEAD.len()) {
            let head = Head::parse(&held[..end])?;
            stream.skip(end);
            return Ok(head);
        }
        if held.len() > HEAD_BYTES_MAX {
            return Err(BadRequest::TooLong.into());
        }
        from = held.len().saturating_sub(END_OF_HEAD.len() - 1);
        if !stream.fill().await? {
            return Err(Refusal::Ended);
        }
    }
}

/// The target of a request. Only the request line decides; the `host` field may say anything.
fn whom(head: &Head) -> Result<(Host, u16), Refusal> {
    let wrong = BadRequest::Malformed("a proxy request must name a host and a port");
    let target = if head.method == "CONNECT" {
        authority(&head.target, 0).filter(|(_, port)| *port != 0)
    } else {
        head.absolute().and_then(|(target, _)| authority(target, HTTP_PORT))
    };
    Ok(target.ok_or(wrong)?)
}

/// Confirms the tunnel, if its host can be reached. Its content is checked like that of any connection.
async fn tunnel(
    shared: &Shared,
    host: &Host,
    port: u16,
    stream: &mut Stream,
) -> Result<(), Refusal> {
    shared.rules.allowing(host, port).ok_or(Refusal::NoRule)?;
    shared.meter.left()?;
    super::connect::permitted(&shared.lookup, &shared.allow_private, host).await?;
    Ok(stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n").await?)
}

/// The part of a request to send, and the checks for what may follow it.
fn request(host: &Host, port: u16, head: &Head, stream: &mut Stream) -> Result<Plan, Refusal> {
    let mut requests = Requests::rest_of(host.clone(), port, head)?;
    let (requested, path) = head.absolute().unwrap_or_default();
    let mut first = head.for_server(requested, path);
    requests.push(&stream.take_held(), &mut first)?;
    Ok(Plan { first, requests: Some(requests), is_tls: false })
}
