//! A call of a tool as its function sees it: who calls, in which session, and the sandbox that is meant.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::session::Session;
use crate::Api;
use crate::budget::Share;
use crate::call::Inside;
use crate::caller::Caller;
use crate::limits::DEADLINE_MAX;
use crate::trail::Trail;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

/// A call that is being answered.
pub struct Work {
    pub api: Api,
    pub caller: Caller,
    pub session: Arc<Session>,
    pub trail: Trail,
    /// Whether another node may carry the call out: it did not come from one.
    pub carries: bool,
    /// Whether it is the operator's, over the control socket.
    pub is_operator: bool,
    /// What the call holds.
    pub memory: Share,
    pub context: RequestContext<RoleServer>,
}

/// A running sandbox that was asked for.
pub struct Entered {
    pub inside: Inside,
    /// What its caller should know of it.
    pub note: Option<String>,
}

impl Work {
    /// The running sandbox of that name, or the session's own, which is made if there is none.
    pub async fn enter(&self, sandbox: Option<&str>) -> Result<Entered, Refusal> {
        let (which, note) = match sandbox {
            Some(name) => (self.named(name)?, None),
            None => self.session.own_or_make(&self.api, &self.caller).await?,
        };
        Ok(Entered { inside: self.inside(which).await?, note })
    }

    /// The same for those who only look: they make nothing.
    pub async fn look(&self, sandbox: Option<&str>) -> Result<Inside, Refusal> {
        self.inside(self.which(sandbox)?).await
    }

    /// The sandbox of that name, or the session's own, in whatever state it is.
    pub fn which(&self, sandbox: Option<&str>) -> Result<SandboxRef, Refusal> {
        if let Some(name) = sandbox {
            return self.named(name);
        }
        let own = self.session.own().ok_or_else(|| {
            Refusal::not_found("this session has no sandbox of its own")
                .hint("call `execute` or `shell_execute`, which make one, or name a sandbox")
        })?;
        // The key may have been given another namespace since.
        self.reaches(&own)?;
        Ok(own)
    }

    /// A name is one of the session's namespace, unless it says another.
    pub fn named(&self, name: &str) -> Result<SandboxRef, Refusal> {
        Ok(self.api.registry().resolve(self.in_namespace(name, "sandbox")?))
    }

    /// What has that name in the session's namespace, or in the one that it says.
    pub fn in_namespace(&self, name: &str, field: &str) -> Result<SandboxRef, Refusal> {
        let invalid = |error| Refusal::invalid(format!("{field}: {error}"));
        let which = if name.contains('/') {
            name.parse().map_err(invalid)?
        } else {
            let namespace = self.session.namespace(&self.caller);
            SandboxRef { namespace, name: name.parse().map_err(invalid)? }
        };
        self.reaches(&which)?;
        Ok(which)
    }

    pub fn reaches(&self, which: &SandboxRef) -> Result<(), Refusal> {
        if self.caller.covers(&which.namespace) {
            return Ok(());
        }
        let message = format!("this key does not cover the namespace {}", which.namespace);
        Err(Refusal::new(Code::Forbidden, message).hint("use a key for that namespace"))
    }

    /// A sandbox that runs. One that is asleep is woken, and the answer says so.
    pub async fn inside(&self, which: SandboxRef) -> Result<Inside, Refusal> {
        Ok(self.api.inside(which).await?.on(&self.trail))
    }

    /// How long a run may take that asks for so many seconds.
    pub fn time_limit(&self, seconds: Option<f64>) -> Result<Duration, Refusal> {
        let Some(seconds) = seconds else { return Ok(self.api.limits().rpc_run_deadline) };
        let limit = Duration::try_from_secs_f64(seconds).ok();
        limit.filter(|limit| limit.as_millis() > 0 && *limit <= DEADLINE_MAX).ok_or_else(|| {
            let max = DEADLINE_MAX.as_secs();
            Refusal::invalid(format!("timeout must be from 0.001 to {max} seconds, not {seconds}"))
        })
    }
}
