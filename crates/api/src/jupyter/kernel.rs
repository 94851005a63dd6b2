//! A kernel: a context of a sandbox, its clients, and the requests that wait for their turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use protocol::repl::{AnswerInput, OpenContext};
use serde_json::{Value, json};

use super::client::{Client, Missed};
use super::content::stream;
use super::history::History;
use super::limits::{CLIENTS_MAX, REQUESTS_WAITING_MAX};
use super::specs::KernelSpec;
use super::wire::{Channel, Outgoing, Request};
use crate::Api;
use crate::budget::{Portion, Share};
use crate::caller::Caller;
use crate::peer::Peer;
use crate::trail::Trail;
use agent_client::guest::Guest;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

/// See the module's description.
pub struct Kernel {
    pub id: String,
    pub spec: &'static KernelSpec,
    pub which: SandboxRef,
    /// With what it is opened again, if another door has closed it.
    pub context: OpenContext,
    /// Whether the sandbox is the door's own, and ends with the kernel.
    pub owns: bool,
    messages: AtomicU64,
    state: Mutex<KernelState>,
}

#[derive(Default)]
struct KernelState {
    clients: Vec<Arc<Client>>,
    requests: VecDeque<Job>,
    /// Whether a task carries requests out.
    is_at_work: bool,
    active_at_ms: u64,
    run: Option<u64>,
    question: Option<Question>,
    history: History,
    /// The number of the last run, as clients know it.
    count: u64,
}

/// A run that waits for a line of its client.
struct Question {
    guest: Guest,
    run: u64,
    request: u64,
    client: Arc<Client>,
}

/// A socket, and who has opened it.
pub struct Seat {
    pub api: Api,
    pub caller: Caller,
    pub peer: Peer,
    pub trail: Trail,
    pub memory: Share,
    pub client: Arc<Client>,
}

/// A request, and who waits for the answer.
pub struct Job {
    pub request: Request,
    pub seat: Arc<Seat>,
    pub _portion: Portion,
}

impl Kernel {
    pub fn new(
        id: String,
        spec: &'static KernelSpec,
        which: SandboxRef,
        context: OpenContext,
        owns: bool,
    ) -> Self {
        let state = KernelState { active_at_ms: host::instant::now_ms(), ..KernelState::default() };
        let (messages, state) = (AtomicU64::new(1), Mutex::new(state));
        Self { id, spec, which, context, owns, messages, state }
    }

    /// Whether both are the same one.
    pub fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.which == other.which
    }

    /// The kernel as Jupyter's clients see it, and where it is.
    pub fn shown(&self) -> Value {
        let state = self.state();
        json!({
            "id": self.id,
            "name": self.spec.name,
            "last_activity": host::instant::format(state.active_at_ms),
            "execution_state": if state.is_at_work { "busy" } else { "idle" },
            "connections": state.clients.len(),
            "burrow": { "sandbox": self.which.to_string(), "context": self.context.context },
        })
    }

    pub fn join(&self, client: &Arc<Client>) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.clients.len() >= CLIENTS_MAX {
            let message = format!("this kernel has {CLIENTS_MAX} connections, which is the limit");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        state.clients.push(Arc::clone(client));
        Ok(())
    }

    /// A question that only this client could answer is answered with the end of the input.
    pub async fn leave(&self, client: &Arc<Client>) {
        let question = {
            let mut state = self.state();
            state.clients.retain(|other| !Arc::ptr_eq(other, client));
            state.question.take_if(|question| Arc::ptr_eq(&question.client, client))
        };
        client.close("it has left");
        self.put(question, None).await;
    }

    /// Closes all sockets.
    pub fn close(&self, reason: &str) {
        self.state().requests.clear();
        for client in self.clients() {
            client.close(reason);
        }
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        self.state().clients.clone()
    }

    fn message(
        &self,
        channel: Channel,
        kind: &str,
        parent: &Bytes,
        content: &Value,
    ) -> Arc<Outgoing> {
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        Arc::new(Outgoing::new(channel, kind, (&self.id, number), parent, content))
    }

    fn notice(&self, missed: Missed, parent: &Bytes) -> Arc<Outgoing> {
        let Missed { messages, bytes } = missed;
        let text = format!(
            "[{messages} messages of {bytes} bytes are missing here: this client did not read them in time]\n"
        );
        self.message(Channel::Iopub, "stream", parent, &stream("stderr", &text))
    }

    /// Tells all clients something that one that does not read may miss.
    pub async fn publish(&self, kind: &str, parent: &Bytes, content: &Value) {
        let clients = self.clients();
        if clients.is_empty() {
            return;
        }
        let message = self.message(Channel::Iopub, kind, parent, content);
        for client in clients {
            client.output(&message, &|missed| self.notice(missed, parent)).await;
        }
    }

    /// Tells all clients something that none of them may miss.
    pub fn announce(&self, kind: &str, parent: &Bytes, content: &Value) {
        let message = self.message(Channel::Iopub, kind, parent, content);
        for client in self.clients() {
            client.word(&message, &|missed| self.notice(missed, parent));
        }
    }

    /// Says what the kernel is doing.
    pub fn state_is(&self, name: &str, parent: &Bytes) {
        self.announce("status", parent, &json!({ "execution_state": name }));
    }

    /// Answers the client of a request, on the request's channel.
    pub fn reply(&self, job: &Job, content: &Value) {
        let kind = job.request.kind.replace("_request", "_reply");
        self.say(job, job.request.channel, &kind, content);
    }

    pub fn say(&self, job: &Job, channel: Channel, kind: &str, content: &Value) {
        let parent = &job.request.parent;
        let message = self.message(channel, kind, parent, content);
        job.seat.client.word(&message, &|missed| self.notice(missed, parent));
    }

    /// Adds a request; whether somebody must begin to carry them out.
    pub fn enqueue(&self, job: Job) -> Result<bool, Refusal> {
        let mut state = self.state();
        if state.requests.len() >= REQUESTS_WAITING_MAX {
            let message = format!("{REQUESTS_WAITING_MAX} requests wait for this kernel already");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        state.active_at_ms = host::instant::now_ms();
        state.requests.push_back(job);
        Ok(!std::mem::replace(&mut state.is_at_work, true))
    }

    /// The next request. `None` ends the work.
    pub fn next_job(&self) -> Option<Job> {
        let mut state = self.state();
        state.active_at_ms = host::instant::now_ms();
        let job = state.requests.pop_front();
        state.is_at_work = job.is_some();
        job
    }

    /// The runs that wait, of one client or of all, which are not carried out any more.
    pub fn take_waiting_runs(&self, of: Option<&Arc<Client>>) -> Vec<Job> {
        let mut state = self.state();
        let (runs, others) = std::mem::take(&mut state.requests).into_iter().partition(|job| {
            job.request.kind == "execute_request"
                && of.is_none_or(|client| Arc::ptr_eq(client, &job.seat.client))
        });
        state.requests = others;
        Vec::from_iter::<VecDeque<Job>>(runs)
    }

    /// The run that is carried out.
    pub fn run(&self) -> Option<u64> {
        self.state().run
    }

    pub fn set_run(&self, run: Option<u64>) {
        let mut state = self.state();
        state.run = run;
        state.question = None;
    }

    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// A run has begun with this number. `code` is what `history_request` finds of it.
    pub fn begin(&self, count: u64, code: Option<&str>) {
        let mut state = self.state();
        state.count = count;
        if let Some(code) = code {
            state.history.add(count, code);
        }
    }

    /// Its interpreter is another one.
    pub fn forget(&self) {
        let mut state = self.state();
        state.history.clear();
        state.count = 0;
    }

    pub fn history(&self, job: &Job) -> Value {
        self.state().history.answer(&job.request.content)
    }

    /// Puts a question of a run to the client that has asked for the run.
    pub async fn ask(&self, job: &Job, guest: &Guest, (run, request): (u64, u64), content: &Value) {
        let client = Arc::clone(&job.seat.client);
        let question = Question { guest: guest.clone(), run, request, client };
        let unanswerable = {
            let mut state = self.state();
            let is_there = state.clients.iter().any(|one| Arc::ptr_eq(one, &question.client));
            if is_there && job.request.content.allow_stdin {
                state.question = Some(question);
                None
            } else {
                Some(question)
            }
        };
        if unanswerable.is_none() {
            self.say(job, Channel::Stdin, "input_request", content);
        }
        self.put(unanswerable, None).await;
    }

    /// A client's line for the question. One that comes too late is for nobody.
    pub async fn answer(&self, line: String) {
        let question = self.state().question.take();
        self.put(question, Some(line)).await;
    }

    async fn put(&self, question: Option<Question>, line: Option<String>) {
        let Some(Question { guest, run, request, .. }) = question else { return };
        let (context, line) = (self.context.context.clone(), line.map(Into::into));
        // A run that has ended meanwhile wants it no more, and one whose guest is gone ends by that.
        drop(guest.answer_input(AnswerInput { context, run, request, line }).await);
    }

    fn state(&self) -> MutexGuard<'_, KernelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
