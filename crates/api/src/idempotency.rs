//! Calls that are done once: a client that does not know whether its call was heard makes it again
//! under the same `Idempotency-Key`, and gets the answer of the first.
//!
//! Such a call goes on when its client is gone, because another may come for the answer. What is
//! remembered is bounded in number, size and time, and is not kept over a restart: sandboxes and
//! sessions have names of their own, so that making one twice is refused then.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Collected};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::body::{Outgoing, Received, Response};
use super::call::Call;
use super::limits::{
    IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENT_ANSWER_BYTES_MAX, IDEMPOTENT_CALL_TTL,
    IDEMPOTENT_CALLS_MAX,
};
use super::problem::{Code, Problem};
use super::route::Operation;

/// The client's name for what it wants done once.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer is that of an earlier call.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Who means what.
type Mark = (String, String);
/// The digest of a whole call.
type Fingerprint = [u8; 32];

/// The calls that are remembered.
#[derive(Debug, Default)]
pub struct IdempotentCalls(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<Mark, Entry>,
    /// The oldest first.
    order: VecDeque<(Mark, Instant)>,
}

#[derive(Clone, Debug)]
struct Entry {
    fingerprint: Fingerprint,
    answer: watch::Receiver<Option<Answer>>,
}

/// An answer that can be given again.
#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Carries a call out, or says what came of it before.
pub async fn answer(operation: &Operation, mut call: Call) -> Result<Response, Problem> {
    let key = call.headers.get(&IDEMPOTENCY_KEY).filter(|_| operation.idempotent).cloned();
    let Some(key) = key else { return (operation.handler)(call).await };
    let key = checked(&key)?;
    let body = call.read_body().await?;
    let fingerprint = fingerprint(operation, &call, &body);
    call.body = Received::of(body);
    let mark = (call.caller.label(), key);
    let api = call.api.clone();
    let (known, sender) = api.remembered().look(&mark, fingerprint)?;
    let is_first = sender.is_some();
    if let Some(sender) = sender {
        // It may outlive this answer, and the connection has others to carry then.
        call.held = None;
        let handler = Arc::clone(&operation.handler);
        let (api, mark) = (api.clone(), mark.clone());
        tokio::spawn(async move {
            let response = handler(call).await.unwrap_or_else(Problem::into_response);
            // A refusal may turn out otherwise the next time.
            let is_final = response.status().is_success();
            let answer = Answer::of(response).await;
            if !is_final || answer.body.len() > IDEMPOTENT_ANSWER_BYTES_MAX {
                api.remembered().forget(&mark);
            }
            sender.send_replace(Some(answer));
        });
    }
    let mut known = known;
    let answered = known.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
    if let Some(answer) = answered {
        return Ok(answer.again(!is_first));
    }
    api.remembered().forget(&mark);
    Err(Problem::new(Code::Internal, "the call ended without an answer"))
}

fn checked(key: &HeaderValue) -> Result<String, Problem> {
    let text = key.to_str().ok().filter(|text| !text.is_empty());
    let max = IDEMPOTENCY_KEY_BYTES_MAX;
    text.filter(|text| text.len() <= max).map(str::to_owned).ok_or_else(|| {
        Problem::invalid(format!("Idempotency-Key must have 1 to {max} ASCII characters"))
    })
}

fn fingerprint(operation: &Operation, call: &Call, body: &[u8]) -> Fingerprint {
    let mut digest = Context::new(&SHA256);
    let path = format!("{:?}", call.parameters);
    for part in [operation.id.as_bytes(), path.as_bytes(), call.query.as_bytes(), body] {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.finish().as_ref());
    bytes
}

type Lookup = (watch::Receiver<Option<Answer>>, Option<watch::Sender<Option<Answer>>>);

impl IdempotentCalls {
    /// The answer that there is or will be, and the place to put it when this call is the first.
    fn look(&self, mark: &Mark, fingerprint: Fingerprint) -> Result<Lookup, Problem> {
        let mut table = self.table();
        table.clean();
        if let Some(entry) = table.calls.get(mark) {
            if entry.fingerprint != fingerprint {
                let message = "this Idempotency-Key was used for another call";
                return Err(Problem::new(Code::IdempotencyMismatch, message)
                    .hint("use a new key for each new call"));
            }
            return Ok((entry.answer.clone(), None));
        }
        let (sender, answer) = watch::channel(None);
        let entry = Entry { fingerprint, answer: answer.clone() };
        table.calls.insert(mark.clone(), entry);
        table.order.push_back((mark.clone(), Instant::now()));
        Ok((answer, Some(sender)))
    }

    fn forget(&self, mark: &Mark) {
        let mut table = self.table();
        table.calls.remove(mark);
        table.order.retain(|(known, _)| known != mark);
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn clean(&mut self) {
        while let Some((mark, since)) = self.order.front() {
            if self.order.len() < IDEMPOTENT_CALLS_MAX && since.elapsed() < IDEMPOTENT_CALL_TTL {
                return;
            }
            self.calls.remove(mark);
            self.order.pop_front();
        }
    }
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (head, body) = response.into_parts();
        // A body that breaks off has said so to nobody yet; the status remains.
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        Self { status: head.status, headers: head.headers, body }
    }

    fn again(self, is_replayed: bool) -> Response {
        let mut response = hyper::Response::new(Outgoing::whole(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if is_replayed {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}
