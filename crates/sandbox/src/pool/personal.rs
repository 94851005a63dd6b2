//! What makes a pooled machine somebody's own.

use std::pin::pin;

use protocol::{ContextName, Fault};

use agent_client::guest::contexts::open;
use agent_client::guest::{Adoption, Guest, GuestError};
use host::secret::Variable;

/// What a machine that runs already can still be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Personal {
    pub hostname: String,
    pub env: Vec<(String, String)>,
    /// What comes on top of it, and is shown nowhere.
    pub secrets: Vec<Variable>,
    /// Where programs begin.
    pub workdir: Option<String>,
}

/// Gives the machine its name and environment, sets its clock, stirs its random numbers and changes
/// its token, all in one request, which also shows that it lives.
///
/// Interpreters that were started ahead have the environment and the directory of the pool. Given an
/// environment, the agent replaces those that nobody has used; for another directory they are closed
/// and opened anew here. Either way the first run waits for an interpreter's start as in a machine
/// that was not pooled, and only that wait is lost. The contexts are there when this returns, so that
/// nobody else can be the first to ask for one by their name.
///
/// Returns what of it this machine cannot have.
pub(super) async fn personalise(
    guest: &Guest,
    personal: &Personal,
    contexts: &[ContextName],
) -> Result<Vec<String>, GuestError> {
    let Personal { hostname, env, secrets, workdir } = personal;
    let plain = env.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    let secrets = secrets.iter().map(|(name, value)| (name.as_str().into(), value.expose().into()));
    let (hostname, env) = (Some(hostname.clone()), plain.chain(secrets).collect());
    // It has never been in a snapshot: what its interpreters know is nobody else's.
    let adopted = guest.adopt(Adoption { hostname, env, restored: false }).await?;
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

/// Opens a context in another directory, and waits until it is there, but not until its interpreter
/// is warm. Returns why the agent does not open it, if it says so at once; what befalls the
/// interpreter later is told to the first run.
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
    // The agent takes requests in the order in which they are made: when it answers the second one,
    // it has made the context or refused to, even where the answer to the first is still on its way.
    let contexts = tokio::select! {
        biased;
        opened = &mut opened => return refusal(opened),
        contexts = guest.contexts() => contexts?,
    };
    let is_there = contexts.iter().any(|found| found.context == *context);
    if is_there { Ok(None) } else { refusal(opened.await) }
}
