//! Forks: copies of a sandbox, with what of it they have.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, MaybeJson, Nothing};
use crate::forms::sandboxes::{LIFETIME_MS_MAX, NAME, Sandbox};
use sandbox::fork::ForkReport;
use sandbox::limits::FORKS_MAX;
use sandbox::refusal::{Code, Refusal};
use sandbox::{ForkRequest, Name};

/// [`FORKS_MAX`] as the schema says it.
const COUNT_MAX: u64 = FORKS_MAX as u64;

pub fn operations() -> Vec<Operation> {
    [operation(
        Method::POST,
        "/v1/sandboxes/{namespace}/{name}/fork",
        "fork_sandbox",
        "Make copies of a running sandbox.",
        fork,
    )
    .run()
    .idempotent()
    .about(
        "Answers when all of them run; if one cannot be made, none is left. A machine with memory snapshots \
        is copied with all that runs in it. Of any other, files and the variables of notebooks are, and \
        `report.left` names what was not. A sandbox that sleeps is woken first. The copies count for the \
        caps of the key that asks.",
    )
    .problems(&[
        Code::Conflict,
        Code::Unsupported,
        Code::StartFailed,
        Code::LimitReached,
        Code::CapExceeded,
        Code::GuestUnreachable,
        Code::TooLarge,
        Code::UnknownSecret,
        Code::SecretFailed,
    ])]
    .map(|operation| operation.tag("sandboxes"))
    .to_vec()
}

/// Copies to make.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[schemars(extend("not" = {
    "required": ["count", "names"],
    "properties": { "names": { "minItems": 1 } },
}))]
#[serde(deny_unknown_fields)]
pub struct ForkSandbox {
    /// How many; 1 by default. Left out with `names`.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = COUNT_MAX))]
    pub count: Option<u64>,
    /// Their names. By default they are those of the sandbox with the first free numbers, as `web-1`.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(max = COUNT_MAX), inner(regex(pattern = NAME)))]
    pub names: Vec<Name>,
    /// Their time to live from now on; by default that of the sandbox.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
}

/// The copies, in the order of their names or numbers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forks {
    pub forks: Vec<Sandbox>,
    pub report: ForkReport,
}

async fn fork(
    call: Call,
    _: Nothing,
    MaybeJson(request): MaybeJson<ForkSandbox>,
) -> Result<Created<Forks>, Refusal> {
    let which = call.which()?;
    if request.count.is_some() && !request.names.is_empty() {
        return Err(Refusal::invalid("count: leave it out with names"));
    }
    let ask = ForkRequest {
        count: usize::try_from(request.count.unwrap_or(1)).unwrap_or(usize::MAX),
        names: request.names,
        key: call.caller.key(),
        ttl_ms: request.ttl_ms,
        carries_notebooks: true,
        ..ForkRequest::default()
    };
    let forked = call.api.registry().fork(&which, ask).await?;
    let forks = forked.forks.into_iter().map(Sandbox::from).collect();
    Ok(Created(Forks { forks, report: forked.report }))
}
