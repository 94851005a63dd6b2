//! What makes a pooled machine somebody's own.

use protocol::ContextName;

use crate::guest::contexts::open;
use crate::guest::{Adoption, Guest, GuestError};

/// What a machine that runs already can still be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Personal {
    pub hostname: String,
    pub env: Vec<(String, String)>,
    /// Where programs begin.
    pub workdir: Option<String>,
}

/// Gives the machine its name and environment, sets its clock, stirs its random numbers and changes
/// its token, all in one request, which also shows that it lives.
///
/// Interpreters that were started ahead have the environment and the directory of the pool. Given an
/// environment, the agent replaces those that nobody has used; for another directory they are closed
/// and opened anew here. Either way the first run waits for an interpreter's start as in a machine
/// that was not pooled, and only that wait is lost.
///
/// Returns what of it this machine cannot have.
pub(super) async fn personalise(
    guest: &Guest,
    personal: &Personal,
    contexts: &[ContextName],
) -> Result<Vec<String>, GuestError> {
    let Personal { hostname, env, workdir } = personal;
    let env = env.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    let (hostname, env) = (Some(hostname.clone()), env.collect());
    // It has never been in a snapshot: what its interpreters know is nobody else's.
    let adopted = guest.adopt(Adoption { hostname, env, restored: false }).await?;
    let Some(workdir) = workdir else { return Ok(adopted.warnings) };
    for context in contexts {
        guest.close_context(context).await?;
        let mut ask = open(context.clone(), context.as_str());
        ask.cwd = Some(workdir.as_str().into());
        let guest = guest.clone();
        // Nobody waits for it: whoever runs something in it meets the same context.
        tokio::spawn(async move { guest.open_context(&ask).await });
    }
    Ok(adopted.warnings)
}
