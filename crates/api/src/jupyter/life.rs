//! What ends, interrupts and restarts a kernel, over REST and by messages.

use std::sync::Arc;

use protocol::repl::{Grace, Interrupt};

use super::kernel::{Job, Kernel};
use crate::Api;
use sandbox::SandboxError;
use sandbox::refusal::{Code, Reason, Refusal};
use serde_json::json;

/// Ends a kernel: its own sandbox, or its context in somebody else's.
pub async fn end(api: &Api, kernel: &Kernel) -> Result<(), Refusal> {
    let ended = if kernel.owns {
        match api.registry().remove(&kernel.which, true).await {
            Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
            Err(error) => Err(Refusal::from(error)),
        }
    } else {
        close(api, kernel).await
    };
    // What is gone already has ended.
    ended.or_else(|refusal| if is_gone(&refusal) { Ok(()) } else { Err(refusal) })?;
    api.jupyter().kernels.forget(kernel);
    kernel.close("the kernel was shut down");
    Ok(())
}

async fn close(api: &Api, kernel: &Kernel) -> Result<(), Refusal> {
    let inside = api.inside(kernel.which.clone()).await?;
    Ok(inside.guest.close_context(&kernel.context.context).await?)
}

pub async fn interrupt(api: &Api, kernel: &Kernel) -> Result<(), Refusal> {
    let inside = api.inside(kernel.which.clone()).await?;
    let (context, run) = (kernel.context.context.clone(), kernel.run());
    let interrupted =
        inside.guest.interrupt(Interrupt { context, run, grace: Grace::default() }).await;
    match interrupted {
        // Its run ended before, or there is none.
        Err(error) if error.fault_code().is_some() => Ok(()),
        interrupted => Ok(interrupted.map(drop)?),
    }
}

/// Gives a kernel another interpreter. Runs that wait are not carried out.
pub async fn restart(api: &Api, kernel: &Arc<Kernel>) -> Result<(), Refusal> {
    abort(kernel, kernel.take_waiting_runs(None));
    let inside = api.inside(kernel.which.clone()).await?;
    match inside.guest.restart_context(&kernel.context.context).await.map_err(Refusal::from) {
        Ok(_) => {}
        // Another door has closed it.
        Err(refusal) if refusal.code == Code::NotFound => {
            inside.guest.open_context(&kernel.context).await?;
        }
        Err(refusal) => return Err(refusal),
    }
    kernel.forget();
    Ok(())
}

/// Answers runs that are not carried out.
pub fn abort(kernel: &Kernel, jobs: Vec<Job>) {
    for job in jobs {
        kernel.state_is("busy", &job.request.parent);
        let content = json!({ "status": "aborted", "execution_count": kernel.count() });
        kernel.reply(&job, &content);
        kernel.state_is("idle", &job.request.parent);
    }
}

/// Whether a refusal says that there is nothing left.
pub fn is_gone(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::NotFound | Code::Gone)
        || matches!(
            refusal.reason,
            Some(Reason::SandboxGone | Reason::NotRunning | Reason::Lost | Reason::Stopped)
        )
}
