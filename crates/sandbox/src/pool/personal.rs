//! Adapts a pooled machine to its claimer.

use std::pin::pin;

use protocol::{ContextName, Fault};

use crate::limits::REOPEN_LOOK_PAUSE;
use agent_client::guest::contexts::open;
use agent_client::guest::{Adoption, Guest, GuestError};
use host::secret::Variable;

/// What a running machine can still be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Personal {
    pub hostname: String,
    pub env: Vec<(String, String)>,
    /// Variables added to it, and shown nowhere.
    pub secrets: Vec<Variable>,
    /// The working directory.
    pub workdir: Option<String>,
}

/// Gives the machine its name and environment, sets its clock, stirs its random numbers and changes
/// its token, all in one request, which also shows that it lives.
///
/// Interpreters that were started ahead have the environment and the directory of the pool. Given an
/// environment, the agent replaces unused interpreters; for another directory they are closed and reopened
/// here. Either way the first run waits for an interpreter's start, as in a machine without a pool, and only
/// that advantage is lost. The contexts exist when this returns, so that nobody else can create one by their
/// name first.
///
/// `restored` says whether it is in a snapshot, so that others know the state of its interpreters.
///
/// Returns what this machine cannot have.
pub(super) async fn personalise(
    guest: &Guest,
    personal: &Personal,
    contexts: &[ContextName],
    restored: bool,
) -> Result<Vec<String>, GuestError> {
    let Personal { hostname, env, secrets, workdir } = personal;
    let plain = env.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    let secrets = secrets.iter().map(|(name, value)| (name.as_str().into(), value.expose().into()));
    let (hostname, env) = (Some(hostname.clone()), plain.chain(secrets).collect());
    let adopted = guest.adopt(Adoption { hostname, env, restored }).await?;
    let mut warnings = adopted.warnings;
    let Some(workdir) = workdir else { return Ok(warnings) };
    for context in contexts {
        guest.close_context(context).await?;
        if let Some(refusal) = reopen(guest, context, workdir).await? {
            warnings.push(format!(
                "cannot open an interpreter for {context} in {workdir:?}: {refusal}"
            ));
        }
    }
    Ok(warnings)
}

/// Opens a context in another directory, and waits until its interpreter has executed, but not until it
/// is ready. Returns why the agent does not open it; the first run reports later failures of the interpreter.
async fn reopen(
    guest: &Guest,
    context: &ContextName,
    workdir: &str,
) -> Result<Option<Fault>, GuestError> {
    let mut ask = open(context.clone(), context.as_str());
    ask.cwd = Some(workdir.into());
    let refusal = |opened| match opened {
        Ok(_) => Ok(None),
        Err(GuestError::Fault(fault)) => Ok(Some(fault)),
        Err(error) => Err(error),
    };
    let mut opened = pin!(guest.open_context(&ask));
    loop {
        let contexts = tokio::select! {
            biased;
            opened = &mut opened => return refusal(opened),
            contexts = guest.contexts() => contexts?,
        };
        match contexts.iter().find(|found| found.context == *context) {
            Some(found) if found.interpreters > 0 => return Ok(None),
            Some(_) => tokio::time::sleep(REOPEN_LOOK_PAUSE).await,
            None => return refusal(opened.await),
        }
    }
}
