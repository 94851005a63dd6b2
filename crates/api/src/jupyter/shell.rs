//! The requests of a kernel's clients, one after the other.

use std::sync::Arc;

use protocol::repl::{CodeState, Complete};
use serde_json::{Value, json};

use super::content::Failure;
use super::entry::words;
use super::execute::{Executed, execute};
use super::kernel::{Job, Kernel, Seat};
use super::life::{abort, end, interrupt, is_gone, restart};
use super::wire::Channel;
use crate::call::Inside;
use crate::caller::Caller;
use crate::forms::contexts::{byte_at, characters_before};
use access::audit::Door;
use sandbox::refusal::Refusal;

/// Takes a request. What is for the kernel itself is done now, the rest in its turn.
pub async fn take(kernel: &Arc<Kernel>, job: Job) -> Result<(), Refusal> {
    match (job.request.channel, job.request.kind.as_str()) {
        (Channel::Iopub, _) => {
            return Err(Refusal::invalid("clients send nothing on the channel iopub"));
        }
        (_, "input_reply") => kernel.answer(job.request.content.value).await,
        (Channel::Stdin, _) => {}
        // A client that leaves the channel out means them for now, too.
        (_, "interrupt_request" | "shutdown_request") => serve(kernel, &job).await,
        (Channel::Control, kind) if kind != "execute_request" => serve(kernel, &job).await,
        (Channel::Control | Channel::Shell, _) => {
            if kernel.enqueue(job)? {
                tokio::spawn(work(Arc::clone(kernel)));
            }
        }
    }
    Ok(())
}

async fn work(kernel: Arc<Kernel>) {
    while let Some(job) = kernel.next_job() {
        serve(&kernel, &job).await;
    }
}

async fn serve(kernel: &Arc<Kernel>, job: &Job) {
    let parent = &job.request.parent;
    kernel.state_is("busy", parent);
    let answered = match readmit(&job.seat) {
        Ok(()) => answer(kernel, job).await,
        Err(refusal) => Err(refusal),
    };
    let mut stops = false;
    match answered {
        Ok(Answer::Executed(executed)) => {
            kernel.reply(job, &executed.reply);
            stops = executed.stops;
        }
        Ok(Answer::Reply(content)) => kernel.reply(job, &content),
        Ok(Answer::Nothing) => {}
        Err(refusal) => {
            refuse(kernel, job, &refusal);
            stops = true;
        }
    }
    kernel.state_is("idle", parent);
    if stops && job.request.kind == "execute_request" {
        abort(kernel, kernel.take_waiting_runs(Some(&job.seat.client)));
    }
}

/// Sockets are open for days: a key that has been revoked meanwhile is good for nothing more.
fn readmit(seat: &Seat) -> Result<(), Refusal> {
    match &seat.caller {
        Caller::Holder(grant) => seat.api.door().readmit(Some(grant), seat.peer).map(drop),
        Caller::Anybody | Caller::Local | Caller::Visitor(_) => Ok(()),
    }
}

/// Says why a request was not carried out; for a cell, below the cell, too.
fn refuse(kernel: &Kernel, job: &Job, refusal: &Refusal) {
    let failure = Failure::new(refusal.code.name(), words(refusal));
    if job.request.kind == "execute_request" {
        kernel.announce("error", &job.request.parent, &failure.content());
    }
    kernel.reply(job, &failure.reply(kernel.count()));
    if is_gone(refusal) {
        kernel.state_is("dead", &job.request.parent);
    }
}

enum Answer {
    Executed(Executed),
    Reply(Value),
    Nothing,
}

async fn answer(kernel: &Arc<Kernel>, job: &Job) -> Result<Answer, Refusal> {
    let api = &job.seat.api;
    let ask = &job.request.content;
    Ok(Answer::Reply(match job.request.kind.as_str() {
        "execute_request" => return execute(kernel, job).await.map(Answer::Executed),
        "kernel_info_request" => kernel.spec.info(&version(kernel, job).await?),
        "complete_request" => complete(kernel, job).await?,
        "is_complete_request" => is_complete(kernel, job).await?,
        // Contexts describe no names.
        "inspect_request" => json!({ "status": "ok", "found": false, "data": {}, "metadata": {} }),
        "history_request" => kernel.history(job),
        "comm_info_request" => json!({ "status": "ok", "comms": {} }),
        "interrupt_request" => {
            recorded(kernel, job, "jupyter_interrupt", interrupt(api, kernel)).await?;
            json!({ "status": "ok" })
        }
        "shutdown_request" => {
            let reply = json!({ "status": "ok", "restart": ask.restart });
            if ask.restart {
                recorded(kernel, job, "jupyter_restart", restart(api, kernel)).await?;
            } else {
                // The kernel's end closes the socket.
                kernel.reply(job, &reply);
                recorded(kernel, job, "jupyter_end", end(api, kernel)).await?;
                return Ok(Answer::Nothing);
            }
            reply
        }
        "comm_open" => {
            // What a kernel answers that does not know the target.
            let content = json!({ "comm_id": ask.comm_id, "data": {} });
            kernel.announce("comm_close", &job.request.parent, &content);
            return Ok(Answer::Nothing);
        }
        kind if kind.ends_with("_request") => {
            let message = format!("this kernel does not know the message {kind:?}");
            return Err(Refusal::new(sandbox::refusal::Code::Unsupported, message));
        }
        _ => return Ok(Answer::Nothing),
    }))
}

/// Does something that is an operation over REST, with its own record in the audit log.
async fn recorded(
    kernel: &Kernel,
    job: &Job,
    operation: &str,
    work: impl Future<Output = Result<(), Refusal>>,
) -> Result<(), Refusal> {
    let trail = job.seat.trail.within(Door::Rest, operation, false);
    trail.sandbox(&kernel.which);
    trail.admit()?;
    let done = work.await;
    trail.ended(done.as_ref().err().map(|refusal| refusal.code));
    done
}

async fn inside(kernel: &Kernel, job: &Job) -> Result<Inside, Refusal> {
    job.seat.api.inside(kernel.which.clone()).await
}

/// The version of the interpreter, which is started if it is not there.
async fn version(kernel: &Kernel, job: &Job) -> Result<String, Refusal> {
    let inside = inside(kernel, job).await?;
    let info = inside.guest.open_context(&kernel.context).await?;
    Ok(info.interpreter.map(|interpreter| interpreter.version).unwrap_or_default())
}

async fn complete(kernel: &Kernel, job: &Job) -> Result<Value, Refusal> {
    let ask = &job.request.content;
    let cursor = match ask.cursor_pos {
        Some(characters) => byte_at(&ask.code, characters).unwrap_or(ask.code.len()),
        None => ask.code.len(),
    };
    let inside = inside(kernel, job).await?;
    let (context, code) = (kernel.context.context.clone(), ask.code.clone());
    let found = inside.guest.complete(Complete { context, code, cursor: cursor as u64 }).await?;
    Ok(json!({
        "status": "ok",
        "matches": found.matches,
        "cursor_start": characters_before(&ask.code, found.start),
        "cursor_end": characters_before(&ask.code, found.end),
        "metadata": {},
    }))
}

async fn is_complete(kernel: &Kernel, job: &Job) -> Result<Value, Refusal> {
    let inside = inside(kernel, job).await?;
    let code = job.request.content.code.clone();
    let checked = inside.guest.check_code(&kernel.context.context, code).await?;
    Ok(match checked.state {
        CodeState::Complete => json!({ "status": "complete" }),
        CodeState::Incomplete => json!({ "status": "incomplete", "indent": checked.indent }),
        CodeState::Invalid => json!({ "status": "invalid" }),
    })
}
