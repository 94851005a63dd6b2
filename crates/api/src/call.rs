//! One call as a handler sees it: who asks, for what, until when, and how the answer shall come.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, HeaderMap};
use hyper::upgrade::OnUpgrade;
use protocol::{ContextName, SessionId};
use tokio::time::Instant;

use super::Api;
use super::admission::RunPermit;
use super::body::{Hold, Received};
use super::budget::Share;
use super::caller::Caller;
use super::limits::DEADLINE_MARGIN;
use super::parameters::Parameters;
pub use super::peer::Peer;
use super::problem::{Code, Problem};
use super::trail::Trail;
use access::keys::Access;
use agent_client::guest::Guest;
use sandbox::{Activity, Name, SandboxId, SandboxRef};

/// How much of a call's time what it runs may take: a little less than all, so that the answer can say
/// how the run ended.
pub fn run_time(left: Duration) -> Duration {
    left.saturating_sub(DEADLINE_MARGIN.min(left / 4))
}

/// The deadline of a program: its own, or a little before its call's.
pub fn run_deadline_ms(asked_ms: Option<u64>, time_left: Option<Duration>) -> Option<u64> {
    let left =
        time_left.map(|left| run_time(left).max(Duration::from_millis(1)).as_millis() as u64);
    match (asked_ms, left) {
        (Some(asked), Some(left)) => Some(asked.min(left)),
        (asked, left) => asked.or(left),
    }
}

/// The number of a request, for logs and for those who ask about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

/// See the module's description.
pub struct Call {
    pub api: Api,
    pub caller: Caller,
    pub request_id: RequestId,
    pub parameters: Parameters,
    /// The query string, without its question mark.
    pub query: String,
    pub headers: HeaderMap,
    pub body: Received,
    /// When the answer is of no use any more, as the client has said.
    pub deadline: Option<Instant>,
    /// Its place among the runs at once, for as long as it is held.
    pub permit: Option<RunPermit>,
    /// What it holds in memory: of its body, and of what is gathered for its answer.
    pub memory: Share,
    /// Kept by whoever goes on with the connection when the call is answered.
    pub held: Option<Hold>,
    /// Its way into the audit log.
    pub trail: Trail,
    /// Present when the client asks for another protocol on this connection.
    pub upgrade: Option<OnUpgrade>,
}

/// A sandbox that is called into. As long as this is held, the sandbox does not count as idle.
pub struct Inside {
    pub which: SandboxRef,
    /// Its machine.
    pub id: SandboxId,
    /// Where programs begin that name no directory.
    pub workdir: Option<String>,
    /// Who they run as that name nobody.
    pub user: Option<String>,
    pub guest: Guest,
    pub activity: Option<Activity>,
}

impl Call {
    /// The sandbox that the path names, if the key reaches it.
    pub fn which(&self) -> Result<SandboxRef, Problem> {
        let namespace: Name = self.parameter("namespace")?;
        let name: Name = self.parameter("name")?;
        self.reaches(&namespace)?;
        Ok(SandboxRef { namespace, name })
    }

    /// Refuses a namespace that is not the key's.
    pub fn reaches(&self, namespace: &Name) -> Result<(), Problem> {
        if self.caller.covers(namespace) {
            return Ok(());
        }
        let message = format!("this key does not cover the namespace {namespace}");
        Err(Problem::new(Code::Forbidden, message).hint("use a key for that namespace"))
    }

    /// The one namespace that is asked for; `None` for all of a key that reaches all.
    pub fn one_namespace(&self, asked: Option<Name>) -> Result<Option<Name>, Problem> {
        match (asked, self.caller.only_namespace()) {
            (Some(namespace), _) => {
                self.reaches(&namespace)?;
                Ok(Some(namespace))
            }
            (None, own) => Ok(own.cloned()),
        }
    }

    /// The running sandbox that the path names.
    pub fn inside(&self) -> Result<Inside, Problem> {
        self.api.inside(self.which()?)
    }

    pub fn session(&self) -> Result<SessionId, Problem> {
        self.parameter("session")
    }

    pub fn context(&self) -> Result<ContextName, Problem> {
        self.parameter("context")
    }

    /// A part of the path.
    pub fn parameter<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.parameters.get(name).unwrap_or_default();
        text.parse().map_err(|error| Problem::invalid(format!("{name} in the path: {error}")))
    }

    /// The whole body, if it is no larger than bodies may be and there is memory for it.
    pub async fn read_body(&mut self) -> Result<Bytes, Problem> {
        self.body.read(self.api.limits().body_bytes_max, &self.memory).await
    }

    /// Whether the client would rather have `kind` than JSON.
    pub fn prefers(&self, kind: &str) -> bool {
        let accepted = self.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        accepted.flat_map(|value| value.split(',')).any(|one| {
            one.split(';').next().is_some_and(|one| one.trim().eq_ignore_ascii_case(kind))
        })
    }

    /// What is left until the deadline of the call, if it has one.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The deadline of a program that the call runs: its own, or a little before the call's.
    pub fn run_deadline_ms(&self, asked_ms: Option<u64>) -> Option<u64> {
        run_deadline_ms(asked_ms, self.time_left())
    }

    /// The same to look at alone: looking is no work in a sandbox, and it may still expire.
    pub fn look(&self) -> Result<Guest, Problem> {
        Ok(self.api.registry().guest(&self.which()?)?)
    }

    /// Refuses a key without this right.
    pub fn may(&self, access: Access) -> Result<(), Problem> {
        if self.caller.may(access) {
            return Ok(());
        }
        let message = format!("this key lacks the scope {access}");
        let hint = "make a key that has it: host-bridge keygen --scope";
        Err(Problem::new(Code::Forbidden, message).hint(hint))
    }
}

/// Resolves when a deadline has passed; never without one.
pub async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
