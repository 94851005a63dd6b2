//! Sessions that outlive their interpreter. They are notebooks; models know them as sessions.

use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::creation::notebook_sandbox;
use crate::forms::notebooks::{InNotebook, Notebook, PastRun, Reopened, Stats, stats_of};
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use access::keys::Access;
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};
use services::notebook::{NotebookSandbox, Turn, TurnRequest};
use services::store::history::RunFilter;

/// Names that are listed in words; the structure has all.
const NAMES_TOLD_MAX: usize = 20;
/// Runs that are shown by default.
const RUNS_SHOWN: u64 = 20;
const RUNS_SHOWN_MAX: u64 = 100;

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "session_list",
            "List sessions",
            "Lists the sessions in this namespace whose variables are kept.",
            Access::Read,
            Effect::Reads,
            list,
        ),
        tool(
            "session_info",
            "Look at a session",
            "Shows which of a session's variables are kept, which are not and why, and how much \
            code has run in it.",
            Access::Read,
            Effect::Reads,
            info,
        ),
        tool(
            "session_history",
            "Show a session's history",
            "Lists the runs of a session, newest first, with the start of their code and output.",
            Access::Read,
            Effect::Reads,
            history,
        ),
        tool(
            "session_remove",
            "Remove a session",
            "Removes a session with its variables, its history and its own sandbox.",
            Access::Run,
            Effect::Ends,
            remove,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// The name of the session.
    session_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HistoryOf {
    /// The name of the session.
    session_id: String,
    /// The maximum number of runs; 20 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Listed {
    sessions: Vec<Notebook>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct SessionDetails {
    session: Notebook,
    statistics: Stats,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Ran {
    runs: Vec<PastRun>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Removed {
    /// The name of the session.
    session_id: String,
}

async fn list(work: Work, _: List) -> Result<Answer<Listed>, Refusal> {
    let namespace = namespace(&work)?;
    let found = work.api.notebooks()?.list(Some(&namespace)).await?;
    Ok(Answer::of(Listed { sessions: found.into_iter().map(Notebook::summary).collect() }))
}

async fn info(work: Work, request: Which) -> Result<Answer<SessionDetails>, Refusal> {
    let (namespace, id) = (namespace(&work)?, named(&request.session_id)?);
    let notebooks = work.api.notebooks()?;
    let session = notebooks.get(&namespace, &id).await?.into();
    let statistics = stats_of(&work.api, &namespace, &id).await?;
    Ok(Answer::of(SessionDetails { session, statistics }))
}

async fn history(work: Work, request: HistoryOf) -> Result<Answer<Ran>, Refusal> {
    let (namespace, id) = (namespace(&work)?, named(&request.session_id)?);
    let notebooks = work.api.notebooks()?;
    notebooks.get(&namespace, &id).await?;
    let runs = notebooks
        .history(RunFilter {
            namespace: Some(namespace.to_string()),
            notebook: Some(id.to_string()),
            limit: request.limit.unwrap_or(RUNS_SHOWN).min(RUNS_SHOWN_MAX),
            ..RunFilter::default()
        })
        .await?;
    Ok(Answer::of(Ran { runs: runs.into_iter().map(PastRun::from).collect() }))
}

async fn remove(work: Work, request: Which) -> Result<Answer<Removed>, Refusal> {
    let (namespace, id) = (namespace(&work)?, named(&request.session_id)?);
    work.api.notebooks()?.remove(&namespace, &id).await?;
    Ok(Answer::of(Removed { session_id: id.to_string() }))
}

/// Waits for a turn in a session, which is made if no session has that name.
pub async fn enter(
    work: &Work,
    id: &str,
    sandbox: Option<&str>,
    language: Option<&str>,
    code: &str,
    give_up_at: Instant,
) -> Result<Turn, Refusal> {
    let id = named(id)?;
    let mut namespace = namespace(work)?;
    let place = sandbox.map(|name| work.which(Some(name))).transpose()?;
    if let Some(which) = &place {
        namespace.clone_from(&which.namespace);
    }
    let notebooks = work.api.notebooks()?;
    let usual = notebook_sandbox(&work.api, &work.caller, (&namespace, &id), |own| {
        work.session.ask_notebook(own);
        Ok(())
    })?;
    notebooks.open(&namespace, &id, language, place.map(NotebookSandbox::Sandbox), usual).await?;
    let ask = TurnRequest { code: code.to_owned(), cache_key: None, by_whom: work.caller.label() };
    tokio::select! {
        turn = notebooks.enter(&namespace, &id, ask) => Ok(turn?),
        () = work.context.ct.cancelled() => {
            Err(Refusal::new(Code::DeadlineExceeded, "the call was cancelled before its turn"))
        }
        () = tokio::time::sleep_until(give_up_at) => {
            let message = "other runs of this session used all of the time";
            Err(Refusal::new(Code::DeadlineExceeded, message).hint("try again with a longer timeout"))
        }
    }
}

/// What models see of a run's session.
pub fn in_session(turn: &mut Turn, id: &str) -> (InNotebook, Option<ContentBlock>) {
    let reopened = turn.reopened.take().map(Reopened::from);
    let words = reopened.as_ref().map(|back| ContentBlock::text(words(id, back)));
    (InNotebook { notebook: id.to_owned(), number: turn.number, reopened }, words)
}

fn words(id: &str, back: &Reopened) -> String {
    let mut words = vec![format!("the session {id} has a new interpreter")];
    if back.as_of_run > 0 {
        let (names, run) = (back.restored.len(), back.as_of_run);
        words.push(format!("{names} variables are as run {run} left them"));
    }
    if back.unsaved_runs > 0 {
        words.push(format!("the changes of the {} runs after it are lost", back.unsaved_runs));
    }
    let lost = back.lost.iter().map(|one| (&one.name, &one.reason));
    let away = back.unavailable.iter().map(|one| (&one.name, &one.reason));
    let missing = lost.chain(away).map(|(name, reason)| format!("{name} is missing: {reason}"));
    let depends = back
        .depends
        .iter()
        .map(|one| format!("{} uses {}, which is missing", one.name, one.uses.join(", ")));
    let mut all: Vec<_> = missing.chain(depends).collect();
    let more = all.len().saturating_sub(NAMES_TOLD_MAX);
    all.truncate(NAMES_TOLD_MAX);
    words.extend(all);
    if more > 0 {
        words.push(format!("and {more} more like these"));
    }
    let directory = back.directory_lost.as_ref();
    words.extend(directory.map(|why| format!("the working directory has changed: {why}")));
    format!("[{}]", words.join("; "))
}

/// That of the session, if the key reaches it.
fn namespace(work: &Work) -> Result<Name, Refusal> {
    let namespace = work.session.namespace(&work.caller);
    if work.caller.covers(&namespace) {
        return Ok(namespace);
    }
    Err(Refusal::invalid(format!("this key does not cover the namespace {namespace}")))
}

fn named(id: &str) -> Result<Name, Refusal> {
    id.parse().map_err(|error| Refusal::invalid(format!("session_id: {error}")))
}
