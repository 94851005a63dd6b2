//! Calls that are done once: a client that does not know whether its call has arrived repeats it
//! under the same `Idempotency-Key`, and gets the answer of the first.
//!
//! Such a call goes on when its client is gone, because another may come for the answer. What is
//! remembered is bounded in number, size and time. It is on disk before it is answered, so that the
//! next bridge knows it; a call that the end of a bridge has cut off has no answer, and is carried
//! out again.

mod answers;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Collected};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use ring::digest::{Context, SHA256};
use tokio::sync::watch;

use self::answers::AnswerFiles;
use super::body::{Outgoing, Received, Response};
use super::call::Call;
use super::limits::{
    IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENT_ANSWER_BYTES_MAX, IDEMPOTENT_ANSWERS_BYTES_MAX,
    IDEMPOTENT_CALL_TTL, IDEMPOTENT_CALLS_MAX,
};
use super::route::Operation;
use host::instant::now_ms;
use sandbox::refusal::{Code, Refusal};

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
pub struct IdempotentCalls {
    table: Mutex<Table>,
    /// None where nothing outlives this process.
    files: Option<AnswerFiles>,
}

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<Mark, Entry>,
    /// The oldest first, with when they were made, in milliseconds since 1970.
    order: VecDeque<(Mark, u64)>,
    /// Of all answers that there are.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    fingerprint: Fingerprint,
    answer: watch::Receiver<Option<Answer>>,
    /// Of the answer, once there is one.
    bytes: usize,
}

/// An answer that can be given again.
#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Carries a call out, or repeats its earlier answer.
pub async fn answer(operation: &Operation, mut call: Call) -> Result<Response, Refusal> {
    let Some(key) = call.headers.get(&IDEMPOTENCY_KEY).cloned() else {
        return (operation.handler)(call).await;
    };
    if !operation.idempotent {
        // Of what a repetition does not change, and of what carries calls of other doors, nothing is lost.
        if operation.method != Method::POST || operation.is_carrier {
            return (operation.handler)(call).await;
        }
        let message = format!("this call takes no {IDEMPOTENCY_KEY}: it is carried out each time");
        return Err(Refusal::invalid(message).hint("leave the header out"));
    }
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
        let (handler, respond) = (Arc::clone(&operation.handler), operation.refusals.respond);
        let (api, mark) = (api.clone(), mark.clone());
        tokio::spawn(async move {
            let response = handler(call).await.unwrap_or_else(|refusal| respond(&refusal));
            // A refusal may turn out otherwise the next time.
            let is_final = response.status().is_success();
            let answer = Answer::of(response).await;
            if !is_final || answer.body.len() > IDEMPOTENT_ANSWER_BYTES_MAX {
                api.remembered().forget(&mark);
            } else {
                let (api, answer) = (api.clone(), answer.clone());
                let keep = move || api.remembered().keep(&mark, fingerprint, &answer);
                let _ = tokio::task::spawn_blocking(keep).await;
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
    Err(Refusal::new(Code::Internal, "the call ended without an answer"))
}

fn checked(key: &HeaderValue) -> Result<String, Refusal> {
    let text = key.to_str().ok().filter(|text| !text.is_empty());
    let max = IDEMPOTENCY_KEY_BYTES_MAX;
    text.filter(|text| text.len() <= max).map(str::to_owned).ok_or_else(|| {
        Refusal::invalid(format!("Idempotency-Key must have 1 to {max} ASCII characters"))
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
    /// Those that the bridge before this one has left in a directory.
    pub fn open(directory: PathBuf) -> Self {
        let files = AnswerFiles::new(directory);
        let mut table = Table::default();
        for known in files.read_all(is_over) {
            let bytes = known.answer.body.len();
            let (_, answer) = watch::channel(Some(known.answer));
            let entry = Entry { fingerprint: known.fingerprint, answer, bytes };
            table.bytes += bytes;
            table.calls.insert(known.mark.clone(), entry);
            table.order.push_back((known.mark, known.since_ms));
        }
        let calls = Self { table: Mutex::new(table), files: Some(files) };
        calls.clean(&mut calls.table());
        calls
    }

    /// The answer that there is or will be, and the place to put it when this call is the first.
    fn look(&self, mark: &Mark, fingerprint: Fingerprint) -> Result<Lookup, Refusal> {
        let mut table = self.table();
        self.clean(&mut table);
        if let Some(entry) = table.calls.get(mark) {
            if entry.fingerprint != fingerprint {
                let message = "this Idempotency-Key was used for another call";
                return Err(Refusal::new(Code::IdempotencyMismatch, message)
                    .hint("use a new key for each new call"));
            }
            return Ok((entry.answer.clone(), None));
        }
        let (sender, answer) = watch::channel(None);
        let entry = Entry { fingerprint, answer: answer.clone(), bytes: 0 };
        table.calls.insert(mark.clone(), entry);
        table.order.push_back((mark.clone(), now_ms()));
        Ok((answer, Some(sender)))
    }

    /// Writes an answer to the disk. One that cannot be written is remembered as long as this process
    /// lives: its call has been carried out.
    fn keep(&self, mark: &Mark, fingerprint: Fingerprint, answer: &Answer) {
        let files = self.files.as_ref();
        let written =
            files.map_or(Ok(()), |files| files.write(mark, fingerprint, now_ms(), answer));
        if let Err(error) = written {
            tracing::warn!("the answer to an idempotent call is not kept on disk: {error}");
        }
        let mut table = self.table();
        // It may have been removed meanwhile, to make room.
        match table.calls.get_mut(mark) {
            Some(entry) => {
                entry.bytes = answer.body.len();
                table.bytes += answer.body.len();
            }
            None => self.remove_file(mark),
        }
    }

    fn forget(&self, mark: &Mark) {
        let mut table = self.table();
        self.remove(&mut table, mark);
        table.order.retain(|(known, _)| known != mark);
    }

    /// Removes what is too old, and the oldest where there is too much.
    fn clean(&self, table: &mut Table) {
        while let Some((mark, since_ms)) = table.order.front().cloned() {
            let has_room = table.order.len() < IDEMPOTENT_CALLS_MAX
                && table.bytes <= IDEMPOTENT_ANSWERS_BYTES_MAX;
            if has_room && !is_over(since_ms) {
                return;
            }
            self.remove(table, &mark);
            table.order.pop_front();
        }
    }

    fn remove(&self, table: &mut Table, mark: &Mark) {
        if let Some(entry) = table.calls.remove(mark) {
            table.bytes -= entry.bytes;
            self.remove_file(mark);
        }
    }

    fn remove_file(&self, mark: &Mark) {
        if let Some(files) = &self.files {
            files.remove(mark);
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call of that time is forgotten. A clock that was set back forgets none.
fn is_over(since_ms: u64) -> bool {
    u128::from(now_ms().saturating_sub(since_ms)) >= IDEMPOTENT_CALL_TTL.as_millis()
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (head, body) = response.into_parts();
        // The end of a body that breaks off is not sent yet; the status remains.
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
