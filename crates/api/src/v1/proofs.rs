//! What proves that recorded output is what the programs wrote: the comparison with the agent's digests, and receipts.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query, Reply};
use access::audit::Audit;
use access::receipt::{Ledger, Ran, Receipt, ReceiptError};
use protocol::SessionId;
use sandbox::Record;
use sandbox::log::{Comparison, LogError, OneSession, ProvenanceLog, ReadBudget, verify};
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/verify",
            "verify_output",
            "Compare recorded output with the agent's digests.",
            compare,
        )
        .tag("logs")
        .about(
            "The agent digests what a program writes, and the end of a session has the digests. This reads the log \
             and says of each output whether it is what the program wrote: `equal`; `partial`, if the rest was \
             removed or never recorded; `damaged`, if files of the log were changed; `differs`; or `unknown`, \
             without a digest.",
        ),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/receipt",
            "get_receipt",
            "Get the signed receipt of a session.",
            receipt,
        )
        .tag("sessions")
        .about(
            "A receipt says what ran, within which limits, what it wrote and how it ended, signed with this bridge's \
             Ed25519 key. The first request issues it, and later ones get the same. `host-bridge receipt verify` \
             checks it without a server.",
        )
        .problems(&[Code::Conflict, Code::Io]),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/receipt",
            "get_run_receipt",
            "Get the signed receipt of a run of a context.",
            receipt_of_run,
        )
        .tag("contexts")
        .about(
            "Says of the code, the outputs and the displays of a run their lengths and digests, and how it ended, as the \
             receipt of a session does. There is one of the newest runs whose events somebody has read to their end, some \
             thousand of a sandbox.",
        )
        .problems(&[Code::Io]),
    ]
}

/// Which run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    /// Its number; the last that has ended by default.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub run: Option<u64>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyQuery {
    /// Only this session.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub session: Option<SessionId>,
}

/// The sessions of a log, compared.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// In the order of their starts.
    pub sessions: Vec<Comparison>,
}

async fn compare(
    call: Call,
    Query(query): Query<VerifyQuery>,
    _: Nothing,
) -> Result<Reply<Verification>, Refusal> {
    let which = call.which()?;
    let log = call.api.registry().log_directory(&which)?;
    let only = query.session.clone();
    let sessions = read(move || verify(&log, only.as_ref())).await?;
    match query.session {
        Some(session) if sessions.is_empty() => Err(unknown(&which, &session)),
        _ => Ok(Reply(Verification { sessions })),
    }
}

async fn receipt(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Receipt>, Refusal> {
    let (which, session) = (call.which()?, call.session()?);
    let registry = call.api.registry();
    let (record, log) = (registry.get(&which)?, registry.log_directory(&which)?);
    let (from, wanted) = (log.clone(), session.clone());
    let looking = move || {
        let mut budget = ReadBudget::ENDLESS;
        OneSession::new(&log, &wanted)?.step(&mut budget)
    };
    let recorded = read(looking).await?.flatten().ok_or_else(|| unknown(&which, &session))?;
    issue(call, record, move |ledger, record, audit| {
        ledger.issue(record, &from, Ran::Session(&recorded), audit)
    })
    .await
}

async fn receipt_of_run(
    call: Call,
    Query(RunQuery { run }): Query<RunQuery>,
    _: Nothing,
) -> Result<Reply<Receipt>, Refusal> {
    let (which, context) = (call.which()?, call.context()?);
    let registry = call.api.registry();
    let (record, log) = (registry.get(&which)?, registry.log_directory(&which)?);
    let (from, wanted) = (log.clone(), context.clone());
    let found = read(move || ProvenanceLog::run(&log, &wanted, run)).await?;
    let found = found.ok_or_else(|| refused(&ReceiptError::no_run(&context, run)))?;
    issue(call, record, move |ledger, record, audit| {
        ledger.issue(record, &from, Ran::Run(&found), audit)
    })
    .await
}

/// Issues a receipt on a thread that may wait for the disk.
async fn issue(
    call: Call,
    record: Record,
    issue: impl FnOnce(&Ledger, &Record, &Audit) -> Result<Receipt, ReceiptError> + Send + 'static,
) -> Result<Reply<Receipt>, Refusal> {
    let ledger = Ledger::new(call.api.registry().store_paths().receipts());
    let audit = call.api.audit().clone();
    let issuing = tokio::task::spawn_blocking(move || {
        issue(&ledger, &record, &audit).map(Reply).map_err(|error| refused(&error))
    });
    issuing.await.map_err(|error| io(&error))?
}

/// Reads a log on a thread that may wait for the disk.
async fn read<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, Refusal> {
    let read = tokio::task::spawn_blocking(work).await.map_err(|error| io(&error))?;
    read.map_err(|error| io(&error))
}

fn refused(error: &ReceiptError) -> Refusal {
    match error {
        ReceiptError::NotEnded { .. } => Refusal::new(Code::Conflict, error.to_string())
            .details(serde_json::json!({ "reason": "still_running" })),
        ReceiptError::NoRun { .. } => Refusal::not_found(error.to_string()),
        ReceiptError::Files { .. }
        | ReceiptError::Audit(_)
        | ReceiptError::Log(_)
        | ReceiptError::Key { .. } => io(error),
    }
}

fn io(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Code::Io, error.to_string())
}

fn unknown(which: &sandbox::SandboxRef, session: &SessionId) -> Refusal {
    Refusal::not_found(format!("the log of {which} has no session {session}"))
        .hint("GET …/sessions?recorded=true lists the sessions")
}
