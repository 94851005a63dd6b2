//! One connection of the guest to an address that stands for a name. Decides whether it is allowed and
//! which protocol it must speak.

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Shared;
use super::carry::{CarryError, Plan, Stream, Tally, carry};
use super::connect::{ConnectError, connect, permitted};
use super::event::{EventSubject, Verdict};
use super::hello::{Greeting, Hello};
use super::host::Host;
use super::http::{BadRequest, Requests, is_request, is_second, refusal_in_second};
use super::inject::UnreadableSecret;
use super::limits::FIRST_BYTES_DEADLINE;
use super::meter::LimitReached;
use super::rule::WEB_PORTS;
use super::unreachable::UnreachableHost;

/// The TLS alert for a client that means another host: fatal, unrecognized name.
const NO_SUCH_HOST: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Why a connection is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("no rule allows it")]
    NoRule,
    #[error("it asks for {named}, but its address belongs to {host}")]
    AnotherHost { named: Host, host: Host },
    #[error("its TLS greeting names no host")]
    Nameless,
    #[error("{0}")]
    Greeting(&'static str),
    #[error("{0}")]
    Request(#[from] BadRequest),
    #[error("it is neither TLS nor HTTP/1; this port carries nothing else")]
    Unknown,
    #[error("it speaks HTTP/2 without TLS; only HTTP/1 is carried without TLS")]
    Second,
    #[error("it sent nothing in time")]
    Silent,
    #[error("it ended before its protocol was known")]
    Ended,
    #[error(transparent)]
    Spent(#[from] LimitReached),
    #[error(transparent)]
    Missing(#[from] UnreadableSecret),
    #[error(transparent)]
    Broken(#[from] CarryError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Serves a connection to its end.
pub(super) async fn serve(shared: &Arc<Shared>, address: Ipv4Addr, port: u16, stream: Stream) {
    let host = shared.names.lock().await.host(address);
    let Some(host) = host else {
        let why = "its address belongs to no allowed name";
        return shared.reporter.refuse(
            EventSubject::Connection,
            &address.to_string(),
            Some(port),
            why,
        );
    };
    lead(shared, &host, port, stream).await;
}

/// Leads a stream of the guest to a host, if that may be.
pub(super) async fn lead(shared: &Arc<Shared>, host: &Host, port: u16, mut stream: Stream) {
    let plan = match look(shared, host, port, &mut stream).await {
        Ok(plan) => plan,
        Err(refused) => return refuse(shared, host, port, stream, &refused).await,
    };
    let reached = match shared.is_read(host, port, &plan) {
        Ok(_) => reach(shared, host, port).await,
        Err(missing) => Err(missing.into()),
    };
    match (reached, shared.reader(host, port, &plan)) {
        (Ok(way), _) => run(shared, host, port, stream, plan, way).await,
        (Err(refused @ Refusal::Spent(_)), None) if plan.requests.is_some() => {
            shared.reporter.refuse(EventSubject::Connection, host.as_str(), Some(port), &refused);
            stream.part(&answer_with(403, "Forbidden", &refused)).await;
        }
        (Err(refused), None) => refuse(shared, host, port, stream, &refused).await,
        (Err(refused), Some(broker)) => {
            shared.reporter.refuse(EventSubject::Connection, host.as_str(), Some(port), &refused);
            let by_rule = matches!(refused, Refusal::Spent(_));
            let unreachable = UnreachableHost { host, why: refused.to_string(), by_rule };
            // The refusal is already reported.
            let _ = broker.decline(&unreachable, stream, plan, shared.idle).await;
        }
    }
}

async fn refuse(shared: &Shared, host: &Host, port: u16, stream: Stream, refused: &Refusal) {
    shared.reporter.refuse(EventSubject::Connection, host.as_str(), Some(port), refused);
    match refused {
        Refusal::Request(_) => stream.part(&answer_with(403, "Forbidden", refused)).await,
        Refusal::AnotherHost { .. } | Refusal::Nameless => stream.part(&NO_SUCH_HOST).await,
        Refusal::Second => stream.part(&refusal_in_second(&refused.to_string())).await,
        // It is reset.
        _ => {}
    }
}

/// An HTTP answer for a client whose request is refused.
pub(super) fn answer_with(status: u16, phrase: &str, why: &dyn std::fmt::Display) -> Vec<u8> {
    let body = format!("The sandbox's host refuses this request: {why}.\n");
    let length = body.len();
    format!(
        "HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Reads the first bytes, if the rule needs to know the host. At other ports it does not: a rule names them,
/// and a server there may be the first to send.
async fn look(
    shared: &Shared,
    host: &Host,
    port: u16,
    stream: &mut Stream,
) -> Result<Plan, Refusal> {
    shared.rules.allowing(host, port).ok_or(Refusal::NoRule)?;
    if !WEB_PORTS.contains(&port) {
        return Ok(Plan::default());
    }
    timeout(FIRST_BYTES_DEADLINE, look_into(host, port, stream))
        .await
        .unwrap_or(Err(Refusal::Silent))
}

async fn look_into(host: &Host, port: u16, stream: &mut Stream) -> Result<Plan, Refusal> {
    let mut greeting = Greeting::default();
    loop {
        match greeting.read(stream.held()) {
            Hello::More => {}
            Hello::Names(named) if named == *host => {
                return Ok(Plan { first: stream.take_held(), requests: None, is_tls: true });
            }
            Hello::Names(named) => {
                return Err(Refusal::AnotherHost { named, host: host.clone() });
            }
            Hello::Nameless => return Err(Refusal::Nameless),
            Hello::Bad(why) => return Err(Refusal::Greeting(why)),
            Hello::Other => match is_request(stream.held()) {
                Some(true) => break,
                Some(false) if is_second(stream.held()) => return Err(Refusal::Second),
                Some(false) => return Err(Refusal::Unknown),
                None => {}
            },
        }
        if !stream.fill().await? {
            return Err(Refusal::Ended);
        }
    }
    let (mut requests, mut first) = (Requests::new(host.clone(), port), Vec::new());
    loop {
        requests.push(&stream.take_held(), &mut first)?;
        if !first.is_empty() {
            return Ok(Plan { first, requests: Some(requests), is_tls: false });
        }
        if !stream.fill().await? {
            return Err(Refusal::Ended);
        }
    }
}

/// The way to a host: the rule that allows it, and the connection.
pub(super) type Route = (String, TcpStream);

/// Connects to a host, if that may be.
pub(super) async fn reach(shared: &Shared, host: &Host, port: u16) -> Result<Route, Refusal> {
    let rule = shared.rules.allowing(host, port).ok_or(Refusal::NoRule)?;
    // A connection that could carry nothing is not opened: no host outside must see it.
    shared.meter.left()?;
    let addresses = permitted(&shared.lookup, &shared.allow_private, host).await?;
    Ok((rule, connect(&addresses, port).await?))
}

/// Carries a connection, and reports its beginning and end.
pub(super) async fn run(
    shared: &Arc<Shared>,
    host: &Host,
    port: u16,
    stream: Stream,
    plan: Plan,
    (rule, connection): Route,
) {
    let report = |verdict| {
        shared.reporter.report(EventSubject::Connection, host.as_str(), Some(port), verdict);
    };
    report(Verdict::Allowed { rule, address: connection.peer_addr().ok() });
    shared.names.lock().await.count(host, true);
    let tally = Tally::of(shared.carried.clone());
    let (meter, idle) = (&shared.meter, shared.idle);
    let carrying = async {
        match shared.reader(host, port, &plan) {
            Some(broker) => {
                let used = |secrets| report(Verdict::Filled { secrets });
                broker.carry(host, stream, connection, plan, meter, idle, &tally, used).await
            }
            None => carry(stream, connection, plan, meter, idle, &tally).await,
        }
    };
    let carried = tokio::select! {
        carried = carrying => carried,
        () = shared.rules.forbid(host, port) => Err(CarryError::Forbidden),
    };
    shared.names.lock().await.count(host, false);
    if let Err(CarryError::Request(wrong) | CarryError::FirstRequest(wrong)) = &carried {
        shared.reporter.refuse(EventSubject::Connection, host.as_str(), Some(port), wrong);
    }
    let is_limit = carried.as_ref().is_err_and(CarryError::is_limit);
    report(Verdict::Ended {
        is_limit,
        sent_bytes: tally.sent_bytes(),
        received_bytes: tally.received_bytes(),
        why: carried.err().map(|broken| broken.to_string()),
    });
}
