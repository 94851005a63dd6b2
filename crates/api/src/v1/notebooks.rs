//! Notebooks: contexts whose variables survive their interpreter, their sandbox and the server.
//! `runs` owns the runs in them, `history` the earlier runs.

mod history;

use hyper::Method;

use super::super::call::Call;
use super::super::forward::{Carried, forward};
use super::super::route::{Operation, operation};
use super::super::shape::{Done, Json, MaybeJson, Nothing, Query, Reply};
use super::super::stream::Either;
use super::super::whereabouts::{self, Subject};
use super::runs::{InterruptRequest, Interrupted, RunEvent, RunRequest, RunResult, carry_turn};
use crate::creation::notebook_sandbox;
use crate::forms::notebooks::{
    ForgetRequest, Notebook, NotebookList, NotebooksQuery, OpenNotebook, Stats, stats_of,
};
use node::Placement;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, SandboxRef};
use services::notebook::{NotebookSandbox, TurnRequest};

pub fn operations() -> Vec<Operation> {
    let all = "/v1/notebooks";
    let one = "/v1/notebooks/{namespace}/{notebook}";
    [
        operation(Method::POST, all, "open_notebook", "Open a notebook.", open)
            .run()
            .idempotent()
            .about(
                "An existing notebook is opened with its variables as its last run left them. With \
                a sandbox, the notebook continues in it. Without one, it gets its own sandbox, \
                which is made when it is needed, ends when it is idle, and is made again.",
            )
            .problems(&[Code::Conflict, Code::LimitReached, Code::Unsupported]),
        operation(Method::GET, all, "list_notebooks", "List the notebooks.", list)
            .about("Ordered by namespace and name."),
        operation(
            Method::GET,
            one,
            "get_notebook",
            "Show a notebook and its saved variables.",
            get,
        )
        .about("`saved` lists every variable: kept, lost with the reason, or not available here."),
        operation(Method::DELETE, one, "remove_notebook", "Remove a notebook.", remove)
            .run()
            .about("Also removes its variables, its history, its interpreter and its own sandbox.")
            .problems(KEPT),
        operation(
            Method::POST,
            "/v1/notebooks/{namespace}/{notebook}/run",
            "run_in_notebook",
            "Run code in a notebook.",
            run,
        )
        .counted()
        .about(
            "Works as in a context, and opens the notebook if it does not exist. `notebook` in the \
            result has the number of the run and, if the interpreter is new, what was restored. \
            The variables are saved after the answer.",
        )
        .problems(KEPT),
        operation(
            Method::POST,
            "/v1/notebooks/{namespace}/{notebook}/interrupt",
            "interrupt_notebook",
            "Interrupt the current run of a notebook.",
            interrupt,
        )
        .run()
        .problems(KEPT),
        operation(
            Method::POST,
            "/v1/notebooks/{namespace}/{notebook}/save",
            "save_notebook",
            "Save a notebook's variables and wait for it.",
            save,
        )
        .run()
        .problems(KEPT),
        operation(
            Method::POST,
            "/v1/notebooks/{namespace}/{notebook}/reset",
            "reset_notebook",
            "Discard all variables of a notebook.",
            reset,
        )
        .run()
        .about("Discards the variables in its interpreter and the saved ones. Its history stays.")
        .problems(KEPT),
        operation(
            Method::POST,
            "/v1/notebooks/{namespace}/{notebook}/forget",
            "forget_variables",
            "Discard saved variables that cannot be loaded.",
            forget,
        )
        .run()
        .about("Until then every save keeps them, for an image that can load them.")
        .problems(KEPT),
        operation(
            Method::GET,
            "/v1/notebooks/{namespace}/{notebook}/stats",
            "notebook_stats",
            "Show the statistics of a notebook.",
            stats,
        )
        .problems(KEPT),
        operation(
            Method::DELETE,
            "/v1/notebooks/{namespace}/{notebook}/cache",
            "clear_cache",
            "Discard the compiled code that a notebook's interpreter caches.",
            clear_cache,
        )
        .run()
        .problems(KEPT),
    ]
    .into_iter()
    .chain(history::operations())
    .map(|operation| operation.tag("notebooks"))
    .collect()
}

/// What keeps a notebook from being used.
const KEPT: &[Code] = &[
    Code::Conflict,
    Code::Gone,
    Code::Io,
    Code::LimitReached,
    Code::TooLarge,
    Code::Unsupported,
    Code::StartFailed,
    Code::GuestUnreachable,
];

impl Call {
    /// The notebook that the path names, if the key reaches it.
    fn notebook(&self) -> Result<(Name, Name), Refusal> {
        let (namespace, id) = (self.parameter("namespace")?, self.parameter("notebook")?);
        self.reaches(&namespace)?;
        Ok((namespace, id))
    }
}

async fn open(
    mut call: Call,
    _: Nothing,
    Json(request): Json<OpenNotebook>,
) -> Result<Carried<Reply<Notebook>>, Refusal> {
    let own = call.caller.only_namespace().cloned();
    let namespace = request.namespace.clone().or(own).unwrap_or_else(Name::default_namespace);
    call.reaches(&namespace)?;
    if let Some(to) = home_of(&call, &namespace, &request).await? {
        let body = call.was_read.take();
        return Ok(Carried::There(Box::new(Box::pin(forward(&mut call, &to, body)).await?)));
    }
    let place = match (request.sandbox, request.spec) {
        (Some(_), Some(_)) => {
            let message = "give a notebook `sandbox` or `spec`, not both";
            return Err(Refusal::new(Code::Conflict, message));
        }
        (Some(name), None) => {
            Some(NotebookSandbox::Sandbox(SandboxRef { namespace: namespace.clone(), name }))
        }
        (None, Some(spec)) => {
            Some(notebook_sandbox(&call.api, &call.caller, (&namespace, &request.name), |own| {
                spec.ask(own)
            })?)
        }
        (None, None) => None,
    };
    let notebooks = call.api.notebooks()?;
    let language = request.language.as_deref();
    let usual = notebook_sandbox(&call.api, &call.caller, (&namespace, &request.name), |_| Ok(()))?;
    let opened = notebooks.open(&namespace, &request.name, language, place, usual).await?;
    Ok(Carried::Here(Reply(opened.into())))
}

/// The other node that has a notebook, or that is to have a new one: that of its sandbox, if it names one.
async fn home_of(
    call: &Call,
    namespace: &Name,
    request: &OpenNotebook,
) -> Result<Option<Placement>, Refusal> {
    if call.api.node().is_none() || call.sent_for.is_some() {
        return Ok(None);
    }
    let in_namespace =
        |name: &Name| SandboxRef { namespace: namespace.clone(), name: name.clone() };
    let notebook = whereabouts::notebook(&in_namespace(&request.name));
    let Some(sandbox) = &request.sandbox else {
        return whereabouts::elsewhere(call, &Subject::Made(notebook)).await;
    };
    match whereabouts::elsewhere(call, &Subject::Thing(notebook.clone())).await? {
        None if !call.api.has(&notebook).await => {
            whereabouts::elsewhere(call, &Subject::Sandbox(in_namespace(sandbox))).await
        }
        found => Ok(found),
    }
}

async fn list(
    call: Call,
    Query(query): Query<NotebooksQuery>,
    _: Nothing,
) -> Result<Reply<NotebookList>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    let found = call.api.notebooks()?.list(namespace.as_ref()).await?;
    Ok(Reply(NotebookList { notebooks: found.into_iter().map(Notebook::summary).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Notebook>, Refusal> {
    let (namespace, id) = call.notebook()?;
    Ok(Reply(call.api.notebooks()?.get(&namespace, &id).await?.into()))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let (namespace, id) = call.notebook()?;
    call.api.notebooks()?.remove(&namespace, &id).await?;
    Ok(Done)
}

async fn run(
    call: Call,
    _: Nothing,
    Json(mut request): Json<RunRequest>,
) -> Result<Either<RunResult, RunEvent>, Refusal> {
    let (namespace, id) = call.notebook()?;
    request.check()?;
    // A notebook keeps what its runs leave.
    request.artifacts = call.api.artifact_store().is_some();
    let notebooks = call.api.notebooks()?.clone();
    let usual = notebook_sandbox(&call.api, &call.caller, (&namespace, &id), |_| Ok(()))?;
    notebooks.open(&namespace, &id, request.language.as_deref(), None, usual).await?;
    let ask = TurnRequest {
        code: request.code.clone(),
        cache_key: request.cache_key.clone(),
        by_whom: call.caller.label(),
    };
    let turn = notebooks.enter(&namespace, &id, ask).await?;
    Box::pin(carry_turn(call, id.to_string(), turn, request)).await
}

async fn interrupt(
    call: Call,
    _: Nothing,
    MaybeJson(request): MaybeJson<InterruptRequest>,
) -> Result<Reply<Interrupted>, Refusal> {
    let (namespace, id) = call.notebook()?;
    request.grace.check()?;
    let run = call.api.notebooks()?.interrupt(&namespace, &id, request.grace.into()).await?;
    Ok(Reply(Interrupted { run }))
}

async fn save(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Notebook>, Refusal> {
    let (namespace, id) = call.notebook()?;
    let notebooks = call.api.notebooks()?;
    notebooks.save(&namespace, &id).await?;
    Ok(Reply(notebooks.get(&namespace, &id).await?.into()))
}

async fn reset(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let (namespace, id) = call.notebook()?;
    call.api.notebooks()?.reset(&namespace, &id).await?;
    Ok(Done)
}

async fn forget(
    call: Call,
    _: Nothing,
    Json(request): Json<ForgetRequest>,
) -> Result<Done, Refusal> {
    let (namespace, id) = call.notebook()?;
    call.api.notebooks()?.forget(&namespace, &id, request.names).await?;
    Ok(Done)
}

async fn stats(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Stats>, Refusal> {
    let (namespace, id) = call.notebook()?;
    Ok(Reply(stats_of(&call.api, &namespace, &id).await?))
}

async fn clear_cache(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let (namespace, id) = call.notebook()?;
    call.api.notebooks()?.compiled(&namespace, &id, true).await?;
    Ok(Done)
}
