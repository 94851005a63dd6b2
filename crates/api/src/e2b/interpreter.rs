//! The code interpreter: runs of code in contexts, as lines of JSON.
//!
//! A run that names no context is of the one that is called like its language, so that the other doors
//! reach the same. A client that leaves has its run interrupted; the context keeps its state.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use protocol::ContextName;
use protocol::repl::{ContextInfo, OpenContext};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::PLAIN;
use super::connect::Message;
use super::results;
use super::seat::{self, Seat, environment};
use crate::body::json_response;
use crate::call::Call;
use crate::environment::of_one_run;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use access::keys::Access;
use agent_client::guest::contexts::{RunCode, language, open};
use host::id::RandomId;
use sandbox::refusal::{Code, Refusal};

/// Languages that E2B calls otherwise than we do.
const THEIR_NAMES: [(&str, &str); 1] = [(language::NODE.name, "javascript")];

pub fn operations() -> Vec<Operation> {
    let contexts = "/.e2b/code/contexts";
    let run = Access::Run;
    [
        operation(Method::POST, "/.e2b/code/execute", "e2b_run_code", "Run code.", execute)
            .counted(),
        operation(Method::POST, contexts, "e2b_make_context", "Make a context.", create)
            .access(Some(run)),
        operation(Method::GET, contexts, "e2b_contexts", "List contexts.", list),
        operation(
            Method::POST,
            "/.e2b/code/contexts/{context}/restart",
            "e2b_restart_context",
            "Restart a context.",
            restart,
        )
        .access(Some(run)),
        operation(
            Method::DELETE,
            "/.e2b/code/contexts/{context}",
            "e2b_remove_context",
            "Remove a context.",
            remove,
        )
        .access(Some(run)),
    ]
    .map(|operation| operation.known_by(seat::known).refusing(PLAIN))
    .to_vec()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Execute {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MakeContext {
    language: Option<String>,
    cwd: Option<String>,
}

async fn execute(
    mut call: Call,
    _: Nothing,
    Message(ask): Message<Execute>,
) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    if ask.context_id.is_some() && ask.language.is_some() {
        return Err(Refusal::invalid("name a context or a language, not both"));
    }
    let known = seat.inside.guest.contexts().await?;
    let name: ContextName = match &ask.context_id {
        Some(id) => id.parse().map_err(|_| missing(id))?,
        None => usual(own_name(ask.language.as_deref())?),
    };
    let context = if let Some(info) = found(&known, name.as_str()) {
        open(name, info.language.clone())
    } else {
        let language = default_context(name.as_str());
        whole(&seat, language.ok_or_else(|| missing(name.as_str()))?)
    };
    let env = ask.env_vars.unwrap_or_default();
    let around = of_one_run(&context.language, &env)?;
    let guest = seat.inside.guest.clone();
    let aside = |code: String| {
        let request = RunCode { aside: true, ..RunCode::new(context.clone(), code) };
        guest.run_code_now(request)
    };
    let named = (&context.context, context.language.as_str());
    let charts = &call.api.e2b().charts;
    let charts = charts.code_for(&seat.inside.id, named, found(&known, named.0.as_str()));
    // One after the other in the context's queue.
    let (before, after) = around.unzip();
    let mut beside = Vec::new();
    for code in charts.into_iter().chain(before) {
        beside.push(aside(code)?);
    }
    let run = guest.run_code_now(RunCode::new(context.clone(), ask.code))?;
    beside.extend(after.map(aside).transpose()?);
    results::answer(&mut call, seat.inside, run, beside).map(Raw)
}

/// A context with all that it is opened with.
fn whole(seat: &Seat, language: &str) -> OpenContext {
    let env = environment(&seat.inside, &seat.account);
    OpenContext {
        cwd: Some(seat.account.home.as_str().into()),
        user: seat.account.user.clone(),
        env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        ..open(usual(language), language)
    }
}

/// The context that a run is of which names none.
fn usual(language: &str) -> ContextName {
    language.parse().expect("languages are names")
}

/// The language of a usual context that is not open yet.
fn default_context(id: &str) -> Option<&'static str> {
    language::names().find(|name| *name == id)
}

fn own_name(requested: Option<&str>) -> Result<&'static str, Refusal> {
    let requested = requested.unwrap_or(language::DEFAULT);
    language::called(&requested.to_ascii_lowercase()).ok_or_else(|| {
        let names: Vec<_> = language::names().map(their_name).collect();
        let message =
            format!("there is no interpreter for {requested:?}; there are {}", names.join(", "));
        Refusal::new(Code::Unsupported, message)
    })
}

fn their_name(own: &str) -> &str {
    THEIR_NAMES.iter().find(|(ours, _)| *ours == own).map_or(own, |(_, theirs)| theirs)
}

fn found<'a>(known: &'a [ContextInfo], id: &str) -> Option<&'a ContextInfo> {
    known.iter().find(|info| info.context.as_str() == id)
}

fn missing(id: &str) -> Refusal {
    Refusal::not_found(format!("there is no context {id:?}"))
}

fn shown(info: &ContextInfo, home: &str) -> Value {
    let cwd = info.cwd.as_ref().map_or_else(|| home.to_owned(), ToString::to_string);
    json!({ "id": info.context, "language": their_name(&info.language), "cwd": cwd })
}

async fn create(
    call: Call,
    _: Nothing,
    Message(ask): Message<MakeContext>,
) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let language = own_name(ask.language.as_deref())?;
    let drawn = RandomId::draw().map_err(|error| Refusal::of(Code::Internal, &error))?;
    let name = format!("e2b-{}", drawn.as_str());
    let context = name.parse().expect("hexadecimal digits behind letters are a name");
    let cwd = seat.account.path(ask.cwd.as_deref().unwrap_or_default())?;
    let opened = OpenContext { context, cwd: Some(cwd.into()), ..whole(&seat, language) };
    let info = seat.inside.guest.open_context(&opened).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown(&info, &seat.account.home))))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let known = seat.inside.guest.contexts().await?;
    let home = &seat.account.home;
    let mut all: Vec<Value> = known.iter().map(|info| shown(info, home)).collect();
    // The usual one is there before its first run.
    let usual = usual(language::DEFAULT);
    if known.iter().all(|info| info.context != usual) {
        let language = their_name(language::DEFAULT);
        all.insert(0, json!({ "id": usual, "language": language, "cwd": home }));
    }
    Ok(Raw(json_response(StatusCode::OK, &all)))
}

/// The context that the path names.
async fn named(call: &Call, seat: &Seat) -> Result<ContextName, Refusal> {
    let id: String = call.parameter("context")?;
    let known = seat.inside.guest.contexts().await?;
    found(&known, &id).map(|info| info.context.clone()).ok_or_else(|| missing(&id))
}

async fn restart(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let id: String = call.parameter("context")?;
    match named(&call, &seat).await {
        Ok(context) => drop(seat.inside.guest.restart_context(&context).await?),
        // It has no state yet that could go.
        Err(_) if default_context(&id).is_some() => {}
        Err(refusal) => return Err(refusal),
    }
    Ok(Raw(json_response(StatusCode::OK, &json!({}))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let context = named(&call, &seat).await?;
    seat.inside.guest.close_context(&context).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({}))))
}
