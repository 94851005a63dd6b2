//! The agent of a sandbox as microsandbox's clients speak with it: programs and files over one WebSocket. The
//! connection is a stream of frames; the boundaries of messages mean nothing.
//!
//! ```text
//!  greeting: a range of numbers, core.ready ─▶ client
//!  client ─▶ frames ─▶ attend ─▶ exec  core.exec.*  a program, from its start to its end
//!                            ├──▶ fs    core.fs.*    files by their paths and by handles
//!                            └──▶ core.ping, core.touch; all else is answered with core.error
//! ```
//!
//! A frame that breaks the rules of frames ends the connection. What is in one that is not understood ends
//! only what it was for. No client decides what a sandbox's own agent is sent: each request becomes one
//! operation, with its own record in the audit log.

mod attend;
mod exec;
mod frame;
mod fs;
mod handles;
mod link;
mod octets;

use hyper::Method;

use super::answer::API;
use super::seat::find;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use crate::websocket::accept;
use link::Seat;
use sandbox::refusal::Refusal;

pub fn operations() -> Vec<Operation> {
    let path = "/msb/v1/sandboxes/{sandbox}/agent";
    vec![
        operation(Method::GET, path, "msb_agent", "Speak with the agent.", connect)
            .run()
            .refusing(API),
    ]
}

async fn connect(mut call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = find(&call)?.which();
    // One that is asleep is woken now, and one that does not answer is refused in words.
    let inside = call.enter(which.clone()).await?;
    let seat = Seat {
        api: call.api.clone(),
        caller: call.caller.clone(),
        peer: call.entrance.peer,
        trail: call.trail.clone(),
        memory: call.memory.clone(),
        which,
    };
    accept(&mut call, move |socket| async move {
        let _awake = inside;
        attend::attend(seat, socket).await;
    })
    .map(Raw)
}
