//! `process.Process`: programs as sessions that are recorded. What they say is kept whether anybody
//! listens or not, each viewer reads at its own pace, and leaving ends none of them.
//!
//! ```text
//!  Start ──▶ begin ──▶ session ──┐
//!  Connect ──▶ by pid or tag ────┴─▶ view: start, data …, end
//! ```

mod begin;
mod commands;
mod input;
mod view;

use hyper::Method;
use protocol::SessionId;
use protocol::message::SessionInfo;
use protocol::requests::{Resize, Signal, Target, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};

pub use commands::Commands;

use super::answer::{STREAMING, UNARY};
use super::connect::{Enveloped, Message, done, timeout};
use super::seat::{self, Seat};
use crate::call::{Call, Inside};
use crate::route::{Operation, operation};
use crate::sessions::find::list as list_sessions;
use crate::sessions::{FoundSession, find};
use crate::shape::{Nothing, Raw};
use access::keys::Access;
use begin::StartAsk;
use commands::Started;
use sandbox::refusal::Refusal;

const SIGTERM: i32 = nix::libc::SIGTERM;
const SIGKILL: i32 = nix::libc::SIGKILL;

pub fn operations() -> Vec<Operation> {
    let post = || Method::POST;
    let streams = [
        operation(
            post(),
            "/.e2b/envd/process.Process/Start",
            "e2b_start",
            "Start a program and follow it.",
            start,
        ),
        operation(
            post(),
            "/.e2b/envd/process.Process/Connect",
            "e2b_follow",
            "Follow a program.",
            connect,
        ),
        operation(
            post(),
            "/.e2b/envd/process.Process/StreamInput",
            "e2b_stream_input",
            "Type into a program.",
            input::stream,
        ),
    ]
    .map(|operation| operation.refusing(STREAMING));
    let unary = [
        operation(post(), "/.e2b/envd/process.Process/List", "e2b_processes", "List.", list),
        operation(
            post(),
            "/.e2b/envd/process.Process/SendInput",
            "e2b_send_input",
            "Type into a program.",
            input::send,
        ),
        operation(
            post(),
            "/.e2b/envd/process.Process/CloseStdin",
            "e2b_close_stdin",
            "End a program's input.",
            input::close,
        ),
        operation(
            post(),
            "/.e2b/envd/process.Process/SendSignal",
            "e2b_signal",
            "End a program.",
            signal,
        ),
        operation(
            post(),
            "/.e2b/envd/process.Process/Update",
            "e2b_resize",
            "Resize a terminal.",
            update,
        ),
    ]
    .map(|operation| operation.refusing(UNARY));
    let all = streams.into_iter().chain(unary);
    all.map(|operation| operation.access(Some(Access::Run)).known_by(seat::known)).collect()
}

/// Which program is meant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// A call about one program.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct About {
    process: Selector,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SignalAsk {
    process: Selector,
    signal: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UpdateAsk {
    process: Selector,
    pty: Option<Pty>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Pty {
    size: Size,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Size {
    cols: u16,
    rows: u16,
}

impl From<Size> for TerminalSize {
    /// What a client leaves out is the size of old terminals.
    fn from(size: Size) -> Self {
        let or = |number: u16, usual| if number == 0 { usual } else { number };
        Self { rows: or(size.rows, 24), columns: or(size.cols, 80) }
    }
}

async fn start(
    mut call: Call,
    _: Nothing,
    Enveloped(ask): Enveloped<StartAsk>,
) -> Result<Raw, Refusal> {
    let seat = Seat::of(&call).await?;
    let limit = timeout(&call.headers)?;
    let (session, pid) = begin::begin(&call, &seat, ask, limit).await?;
    let found = find(&call, &seat.inside.which, &session).await?;
    // The program ends at its time, and its viewer hears that.
    view::view(&mut call, found, pid, None).await.map(Raw)
}

async fn connect(
    mut call: Call,
    _: Nothing,
    Enveloped(ask): Enveloped<About>,
) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let limit = timeout(&call.headers)?;
    let found = selected(&call, &inside, &ask.process).await?;
    let pid = found.session.run().pid;
    view::view(&mut call, found, pid, limit).await.map(Raw)
}

/// Tells whether a session with this number is the program that is meant.
fn is_meant(
    call: &Call,
    inside: &Inside,
    which: &Selector,
) -> impl Fn(&SessionId, u32) -> bool + use<> {
    let tagged = which.tag.as_ref().map(|tag| call.api.e2b().commands.tagged(&inside.id, tag));
    let asked = which.pid;
    move |session, pid| match &tagged {
        Some(tagged) => tagged.as_ref() == Some(session),
        None => asked == Some(pid),
    }
}

/// The program that is meant: one that runs, or the last that had this number.
async fn selected(call: &Call, inside: &Inside, which: &Selector) -> Result<FoundSession, Refusal> {
    let is_meant = is_meant(call, inside, which);
    for with_recorded in [false, true] {
        let all = list_sessions(&call.api, &inside.which, with_recorded).await?;
        let meant = all.into_iter().filter(|found| is_meant(found.id(), found.run().pid));
        let last = meant.max_by_key(|found| (found.exit().is_none(), found.run().started_at_ms));
        if let Some(found) = last {
            let id = found.id().clone();
            return find(call, &inside.which, &id).await;
        }
    }
    Err(missing(which))
}

/// The same among those that run.
async fn running(inside: &Inside, call: &Call, which: &Selector) -> Result<SessionInfo, Refusal> {
    let is_meant = is_meant(call, inside, which);
    let sessions = inside.guest.sessions(0).await?.sessions;
    let mut running = sessions.into_iter().filter(|info| info.exit.is_none());
    running.find(|info| is_meant(&info.session, info.pid)).ok_or_else(|| missing(which))
}

fn missing(which: &Selector) -> Refusal {
    match (&which.tag, which.pid) {
        (Some(tag), _) => Refusal::not_found(format!("there is no process with the tag {tag:?}")),
        (None, Some(pid)) => Refusal::not_found(format!("there is no process {pid}")),
        (None, None) => Refusal::invalid("the message names no process"),
    }
}

async fn list(call: Call, _: Nothing, _: Message<Value>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let sessions = inside.guest.sessions(0).await?.sessions;
    // The clients know processes by their numbers, which one that is starting may not have.
    let running = sessions.into_iter().filter(|info| info.exit.is_none() && info.pid != 0);
    let shown: Vec<Value> = running
        .map(|info| {
            let known = call.api.e2b().commands.get(&inside.id, &info.session);
            let started = known.unwrap_or_else(|| Started::seen(&info.command));
            let mut shown = json!({
                "pid": info.pid,
                "config": { "cmd": started.cmd, "args": started.args, "envs": started.envs },
            });
            if let Some(cwd) = started.cwd {
                shown["config"]["cwd"] = cwd.into();
            }
            if let Some(tag) = started.tag {
                shown["tag"] = tag.into();
            }
            shown
        })
        .collect();
    Ok(done(&json!({ "processes": shown })))
}

async fn signal(call: Call, _: Nothing, Message(ask): Message<SignalAsk>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let signal = match ask.signal.as_str() {
        "SIGNAL_SIGKILL" => SIGKILL,
        "SIGNAL_SIGTERM" => SIGTERM,
        other => return Err(Refusal::invalid(format!("signal: {other:?} is not taken"))),
    };
    let info = running(&inside, &call, &ask.process).await?;
    let target = Target::Tree;
    inside.guest.signal(Signal { session: info.session, signal, target }).await?;
    Ok(done(&json!({})))
}

async fn update(call: Call, _: Nothing, Message(ask): Message<UpdateAsk>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let info = running(&inside, &call, &ask.process).await?;
    if let Some(pty) = ask.pty {
        let resize = Resize { session: info.session, size: pty.size.into(), redraw: false };
        inside.guest.resize(resize).await?;
    }
    Ok(done(&json!({})))
}
