//! Runs of code in contexts, returned whole at their end or streamed. `carried` carries both kinds;
//! `event`, `end` and `result` are their messages.

mod ask;
mod carried;
mod end;
mod event;
mod limits;
mod narrator;
mod result;
mod socket;

use hyper::Method;
use protocol::ContextName;
use protocol::repl::AnswerInput;
use serde_json::json;

use super::super::Api;
use super::super::body::{NDJSON, Response};
use super::super::call::Call;
use super::super::route::{Document, Operation, Output, operation};
use super::super::shape::{Done, Json, MaybeJson, Nothing, Reply};
use super::super::stream::{Either, Events, Teller};
use super::super::websocket;
use agent_client::guest;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};
use services::notebook::Turn;

use crate::forms::notebooks::{InNotebook, Reopened};
use ask::{InputAnswer, RunOrder};
pub use ask::{InterruptRequest, Interrupted, RunRequest};
use carried::{Beginning, Carried, InTurn};
pub use event::RunEvent;
use narrator::Narrator;
pub use result::RunResult;

const ABOUT: &str = "Answers with the whole run when it ends. An exception, a timeout, an \
interrupt and the death of the interpreter are results; `status` tells which. With `Accept: \
application/x-ndjson` the events come as they happen. Runs of one context wait for each other. If \
the client disconnects, the run is interrupted, unless `on_disconnect` is `detach`.";

pub fn operations() -> Vec<Operation> {
    let in_context = "/v1/sandboxes/{namespace}/{name}/contexts/{context}/run";
    [
        operation(Method::POST, in_context, "run_in_context", "Run code in a context.", run)
            .counted()
            .about(ABOUT)
            .problems(REFUSALS),
        operation(
            Method::GET,
            in_context,
            "converse_in_context",
            "Run code in a context, over a WebSocket.",
            converse,
        )
        .counted()
        .about(
            "The first message is the body that the POST call takes. After it, each event comes as \
            a message as it happens. The client may send `input` and `interrupt` meanwhile. The \
            socket is closed with 1000 after the last event.",
        ),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/run",
            "run",
            "Run code in the default context of its language.",
            run_anywhere,
        )
        .counted()
        .about(ABOUT)
        .problems(REFUSALS),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/interrupt",
            "interrupt_run",
            "Interrupt a run or remove it from the queue.",
            interrupt,
        )
        .run()
        .about("Answers at once; the run's result tells how it ended."),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/input",
            "answer_input",
            "Answer a run's request for input.",
            input,
        )
        .run()
        .problems(&[Code::Gone]),
    ]
    .map(|operation| operation.tag("runs"))
    .to_vec()
}

/// What keeps a run from being queued.
const REFUSALS: &[Code] = &[Code::Unsupported, Code::Gone, Code::TooLarge];

async fn run(
    call: Call,
    _: Nothing,
    Json(request): Json<RunRequest>,
) -> Result<Either<RunResult, RunEvent>, Refusal> {
    let context = call.context()?;
    carry(call, context, request).await
}

async fn run_anywhere(
    call: Call,
    _: Nothing,
    Json(request): Json<RunRequest>,
) -> Result<Either<RunResult, RunEvent>, Refusal> {
    let context = request.usual_context()?;
    carry(call, context, request).await
}

async fn carry(
    mut call: Call,
    context: ContextName,
    request: RunRequest,
) -> Result<Either<RunResult, RunEvent>, Refusal> {
    let beginning = beginning(&mut call).await?;
    carry_on(call, beginning, context, request).await
}

/// Runs code in a notebook whose turn it is.
pub async fn carry_turn(
    mut call: Call,
    notebook: String,
    mut turn: Turn,
    request: RunRequest,
) -> Result<Either<RunResult, RunEvent>, Refusal> {
    let inside = call.enter(turn.which.clone()).await?;
    let context = turn.context.context.clone();
    let reopened = turn.reopened.take().map(Reopened::from);
    let place = InNotebook { notebook, number: turn.number, reopened };
    let (permit, memory) = (call.permit.take(), call.memory.clone());
    let turn = Some(InTurn { turn, place });
    let api = call.api.clone();
    let beginning = Beginning { api, inside, permit, memory, deadline: call.deadline, turn };
    carry_on(call, beginning, context, request).await
}

async fn carry_on(
    mut call: Call,
    beginning: Beginning,
    context: ContextName,
    request: RunRequest,
) -> Result<Either<RunResult, RunEvent>, Refusal> {
    let bytes_max = request.output_bytes_max();
    let carried = Carried::begin(beginning, context, request).await?;
    if call.prefers(NDJSON.to_str().unwrap_or_default()) {
        let events = Events::begin(&mut call, |teller| {
            // The stream's own task goes with its client.
            let apart = carried.goes_on();
            let telling = carried.tell(teller);
            let telling = if apart { Err(tokio::spawn(telling)) } else { Ok(telling) };
            async move {
                match telling {
                    Ok(telling) => telling.await,
                    Err(apart) => drop(apart.await),
                }
            }
        })?;
        return Ok(Either::Stream(events));
    }
    let result = if carried.goes_on() {
        carried.gather_anyway(bytes_max).await?
    } else {
        carried.gather(bytes_max).await?
    };
    Ok(Either::Whole(result))
}

async fn beginning(call: &mut Call) -> Result<Beginning, Refusal> {
    let inside = call.inside().await?;
    let (permit, memory) = (call.permit.take(), call.memory.clone());
    let api = call.api.clone();
    Ok(Beginning { api, inside, permit, memory, deadline: call.deadline, turn: None })
}

async fn converse(mut call: Call, _: Nothing, _: Nothing) -> Result<RunSocket, Refusal> {
    let context = call.context()?;
    let beginning = beginning(&mut call).await?;
    let attend = move |socket| socket::attend(socket, beginning, context);
    Ok(RunSocket(websocket::accept(&mut call, attend)?))
}

async fn interrupt(
    call: Call,
    _: Nothing,
    MaybeJson(request): MaybeJson<InterruptRequest>,
) -> Result<Reply<Interrupted>, Refusal> {
    let context = call.context()?;
    request.grace.check()?;
    let inside = call.inside().await?;
    let run = carried::interrupt(&inside.guest, context, request.run, request.grace.into()).await?;
    Ok(Reply(Interrupted { run }))
}

async fn input(call: Call, _: Nothing, Json(answer): Json<InputAnswer>) -> Result<Done, Refusal> {
    let context = call.context()?;
    let InputAnswer { run, request, line } = answer;
    let ask = AnswerInput { context, run, request, line: line.map(Into::into) };
    call.inside().await?.guest.answer_input(ask).await?;
    Ok(Done)
}

/// Tells of all that happens in a context, until it is closed.
pub async fn watch(
    api: Api,
    which: SandboxRef,
    mut watched: guest::Events,
    teller: Teller<RunEvent>,
) {
    let mut narrator = Narrator::default();
    loop {
        let sent = match watched.next().await {
            Ok(Some(event)) => narrator.tell(event),
            Ok(None) => return,
            Err(error) => {
                vec![RunEvent::problem(None, &api.explained(&which, error.into()).await)]
            }
        };
        let is_over = sent.iter().any(RunEvent::is_problem);
        for event in &sent {
            if teller.tell(event).await.is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
    }
}

/// The answer to a run on a WebSocket.
struct RunSocket(Response);

impl Output for RunSocket {
    fn describe(document: &mut Document<'_>) {
        let first = document.schemas.subschema_for::<RunRequest>();
        let order = document.schemas.subschema_for::<RunOrder>();
        let event = document.schemas.subschema_for::<RunEvent>();
        let messages = json!({ "first": first, "client": order, "server": event });
        document.insert("x-websocket-messages", messages);
        document.response("101", json!({ "description": "Events, as WebSocket messages." }));
    }

    fn into_response(self) -> Response {
        self.0
    }
}
