//! One operation on its way into the audit log, and the span of it that a collector gets.
//!
//! The door that takes an operation begins its trail, handlers add what only they know, and the record
//! is written when the last holder drops it: after the end of a stream, a WebSocket, or a call that
//! goes on without its client. The span ends with it, and has what the record has.

mod span;

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use otel::{Attributes, Otel, Span, SpanKind};
use protocol::Text;
use protocol::requests::Program;
use serde_json::Value;

use super::caller::Caller;
use super::peer::Peer;
use crate::problem::status;
use access::audit::{Audit, AuditUnwritable, Door, Entry, Outcome, Verdict, Who};
use sandbox::refusal::{Code, Refusal};
use sandbox::{Registry, SandboxRef, Spec};

/// Records of those without a good key, in [`STRANGERS_PERIOD`]. Anybody can knock, and what they cost
/// must not push out what others did; beyond this they are counted.
const STRANGERS_MAX: u32 = 60;
const STRANGERS_PERIOD: Duration = Duration::from_secs(60);

/// See the module's description. Clones are the same operation.
#[derive(Clone, Default)]
pub struct Trail {
    /// Nothing is recorded without it.
    inner: Option<Arc<Inner>>,
    /// How long the operation waited for a sandbox that was asleep, which its answer says.
    woke_in: Arc<OnceLock<Duration>>,
}

struct Inner {
    audit: Audit,
    registry: Registry,
    otel: Otel,
    begun: Instant,
    /// Whether it only looks.
    looks: bool,
    noted: Mutex<Noted>,
}

struct Noted {
    entry: Entry,
    sandbox: Option<SandboxRef>,
    is_dropped: bool,
    span: Option<Span>,
}

/// Where a trail ends.
#[derive(Clone)]
pub struct Ends {
    pub audit: Audit,
    pub registry: Registry,
    pub otel: Otel,
}

impl Trail {
    /// Begins a trail, whose span is a part of it where there is one.
    pub fn begin(ends: Ends, entry: Entry, looks: bool, span: Option<Span>) -> Self {
        let Ends { audit, registry, otel } = ends;
        if audit.directory().is_none() && !otel.has_traces() {
            return Self::default();
        }
        let noted = Mutex::new(Noted { entry, sandbox: None, is_dropped: false, span });
        let begun = Instant::now();
        let inner = Some(Arc::new(Inner { audit, registry, otel, begun, looks, noted }));
        Self { inner, ..Self::default() }
    }

    /// Refuses what must not be done without a record.
    pub fn admit(&self) -> Result<(), Refusal> {
        let Some(inner) = self.inner.as_ref().filter(|inner| !inner.looks || inner.audit.reads())
        else {
            return Ok(());
        };
        inner.audit.admit().map_err(|error: AuditUnwritable| {
            Refusal::new(Code::Unavailable, error.to_string())
                .hint("the server's log says why; its operator must mend that")
                .retry_after(sandbox::limits::BUSY_PAUSE)
        })
    }

    pub fn who(&self, caller: &Caller) {
        self.note(|noted| noted.entry.who = who(caller));
    }

    /// The sandbox that it is about.
    pub fn sandbox(&self, which: &SandboxRef) {
        let Some(inner) = &self.inner else { return };
        // Behind a removal nothing is known of it any more.
        let found = inner.registry.get(which).ok();
        self.note(|noted| {
            noted.entry.namespace = Some(which.namespace.to_string());
            noted.entry.sandbox = Some(which.name.to_string());
            noted.sandbox = Some(which.clone());
            if let Some(record) = found {
                noted.entry.describe(record);
            }
        });
    }

    /// Whether it is known which sandbox it is about.
    pub fn has_sandbox(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.noted().sandbox.is_some())
    }

    /// A sandbox to be made.
    pub fn creation(&self, spec: &Spec) {
        self.sandbox(&spec.which());
        self.note(|noted| {
            noted.entry.image.clone_from(&spec.image);
            noted.entry.secrets.clone_from(&spec.secrets);
            noted.entry.labels.clone_from(&spec.labels);
        });
        for (name, value) in spec.requested() {
            self.fact(name, value);
        }
    }

    /// An image that is no sandbox's.
    pub fn image(&self, name: Option<String>, digest: Option<String>) {
        self.note(|noted| {
            noted.entry.image = name.or_else(|| noted.entry.image.take());
            noted.entry.digest = digest.or_else(|| noted.entry.digest.take());
        });
    }

    /// The program that it starts. Code is not recorded here.
    pub fn program(&self, program: &Program) {
        match program {
            Program::Argv { argv } => self.command(argv.iter().map(Text::to_string)),
            Program::Script { shell, .. } => {
                let shell = shell.as_ref().map_or_else(|| "sh".to_owned(), Text::to_string);
                self.command(iter::once(shell));
            }
            Program::LoginShell {} => self.command(iter::once("login shell".to_owned())),
        }
    }

    /// A program and its arguments, which are looked at only where they are recorded.
    pub fn command(&self, mut argv: impl Iterator<Item = String>) {
        let Some(inner) = &self.inner else { return };
        let Some(program) = argv.next() else { return };
        let arguments = if inner.audit.arguments() { argv.collect() } else { Vec::new() };
        self.note(|noted| {
            noted.entry.program = Some(program);
            noted.entry.arguments = arguments;
        });
    }

    pub fn fact(&self, name: &str, value: impl Into<Value>) {
        self.note(|noted| drop(noted.entry.facts.insert(name.to_owned(), value.into())));
    }

    /// The outcome.
    pub fn answered(&self, status: StatusCode, code: Option<Code>) {
        self.note(|noted| {
            let entry = &mut noted.entry;
            entry.status = Some(status.as_u16());
            entry.code = code.map(|code| code.name().to_owned());
            entry.policy = code.and_then(verdict);
            entry.outcome = outcome(status, code);
        });
    }

    /// The same for what has no status.
    pub fn ended(&self, refused: Option<Code>) {
        self.note(|noted| {
            noted.entry.code = refused.map(|code| code.name().to_owned());
            noted.entry.policy = refused.and_then(verdict);
            noted.entry.outcome =
                refused.map_or(Outcome::Ok, |code| outcome(status(code), refused));
        });
    }

    /// An entry for a caller without a valid key.
    pub fn of_stranger(&self, strangers: &UnknownCallers) {
        match strangers.admit() {
            None => {
                self.forget();
                self.note(|noted| noted.span.iter_mut().for_each(Span::discard));
            }
            Some(0) => {}
            Some(more) => self.fact("more_not_recorded", more),
        }
    }

    /// Others record what is in it. Its span stays that of the request.
    pub fn forget(&self) {
        self.note(|noted| noted.is_dropped = true);
    }

    /// The trail of something that this operation carries, through the same connection.
    pub fn within(&self, door: Door, operation: &str, looks: bool) -> Self {
        let woke_in = Arc::clone(&self.woke_in);
        let Some(inner) = &self.inner else { return Self { inner: None, woke_in } };
        let (outer, scope) = {
            let noted = inner.noted();
            (noted.entry.clone(), noted.span.as_ref().map(|span| span.scope(Attributes::default())))
        };
        let span = match scope {
            Some(scope) => scope.child(operation),
            None => inner.otel.begin(None, SpanKind::Server, operation),
        };
        let entry = Entry::new(outer.who, door, operation);
        let entry = Entry { request: outer.request, remote: outer.remote, ..entry };
        let (audit, registry) = (inner.audit.clone(), inner.registry.clone());
        let ends = Ends { audit, registry, otel: inner.otel.clone() };
        Self { woke_in, ..Self::begin(ends, entry, looks, span) }
    }

    /// It waited so long for a sandbox that was asleep.
    pub fn woke(&self, woke_in: Option<Duration>) {
        let Some(woke_in) = woke_in else { return };
        // Of several sandboxes the first counts.
        let _ = self.woke_in.set(woke_in);
        if let Some(woke_ms) = self.woke_ms() {
            self.fact("woke_ms", woke_ms);
        }
    }

    /// Rounded up: one that waited never says that it took no time.
    pub fn woke_ms(&self) -> Option<u64> {
        let woke_in = self.woke_in.get()?;
        Some(u64::try_from(woke_in.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    fn note(&self, change: impl FnOnce(&mut Noted)) {
        if let Some(inner) = &self.inner {
            change(&mut inner.noted());
        }
    }
}

pub use span::span_of_request;

impl Inner {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        // Nothing in it is ever half-changed.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let noted = self.noted.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A refused look is worth a line, whatever is recorded of the others.
        let is_policy = matches!(noted.entry.policy, Some(Verdict::Key | Verdict::Scope));
        let is_recorded = !noted.is_dropped && (!self.looks || self.audit.reads() || is_policy);
        if !is_recorded && !noted.span.as_ref().is_some_and(Span::is_seen) {
            return;
        }
        let mut entry = noted.entry.clone();
        if let Some(which) = noted.sandbox.as_ref().filter(|_| entry.id.is_none())
            && let Ok(record) = self.registry.get(which)
        {
            // It was not there when this began.
            if entry.outcome == Outcome::Ok {
                entry = entry.facts(record.granted());
            }
            entry.describe(record);
        }
        entry.duration_us =
            Some(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        if let Some(span) = &mut noted.span {
            entry.place = Some(span.context().into());
            span::describe(span, &entry);
        }
        if is_recorded {
            self.audit.record(entry);
        }
    }
}

/// An entry for a caller of one of the doors.
pub fn entry(caller: &Caller, door: Door, operation: &str, request: &str, peer: Peer) -> Entry {
    let remote = match peer {
        Peer::Tcp(address) => Some(address.to_string()),
        Peer::Local => None,
    };
    let request = Some(request.to_owned());
    Entry { request, remote, ..Entry::new(who(caller), door, operation) }
}

fn who(caller: &Caller) -> Who {
    match caller {
        Caller::Anybody | Caller::Visitor(_) => Who::Anybody,
        Caller::Local => Who::Local,
        Caller::Holder(grant) => Who::Key { id: caller.label(), name: grant.name.clone() },
    }
}

fn verdict(code: Code) -> Option<Verdict> {
    match code {
        Code::Unauthenticated => Some(Verdict::Key),
        Code::Forbidden => Some(Verdict::Scope),
        Code::RateLimited => Some(Verdict::Rate),
        Code::LimitReached => Some(Verdict::Limit),
        Code::CapExceeded => Some(Verdict::Cap),
        Code::UnknownSecret | Code::SecretFailed => Some(Verdict::Secret),
        _ => None,
    }
}

fn outcome(status: StatusCode, code: Option<Code>) -> Outcome {
    let began = matches!(
        code,
        Some(
            Code::SpawnFailed
                | Code::AppFailed
                | Code::AppNotReady
                | Code::ModuleMissing
                | Code::Io
        )
    );
    if status.is_server_error() || began {
        Outcome::Failed
    } else if status.is_client_error() {
        Outcome::Refused
    } else {
        Outcome::Ok
    }
}

/// How many of those without a good key are recorded.
#[derive(Debug, Default)]
pub struct UnknownCallers(Mutex<RefusalCount>);

#[derive(Debug, Default)]
struct RefusalCount {
    since: Option<Instant>,
    recorded: u32,
    uncounted: u64,
}

impl UnknownCallers {
    /// Whether one more is recorded, and how many were not since the last.
    pub fn admit(&self) -> Option<u64> {
        let mut knocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if knocks.since.is_none_or(|since| since.elapsed() >= STRANGERS_PERIOD) {
            (knocks.since, knocks.recorded) = (Some(Instant::now()), 0);
        }
        if knocks.recorded >= STRANGERS_MAX {
            knocks.uncounted += 1;
            return None;
        }
        knocks.recorded += 1;
        Some(std::mem::take(&mut knocks.uncounted))
    }
}
