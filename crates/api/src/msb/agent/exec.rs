//! A program, from a client's request to its end. It is a session that is recorded: what it writes is in the
//! log of the sandbox, and it goes on when its client is gone.

use protocol::requests::{
    GroupLimits, Program, Resize, Signal, SpoolSpec, Start as Begin, Stdio, Target, TerminalSize,
};
use protocol::{Cause, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::link::{Control, Incoming, Input, Link};
use super::octets::Octets;
use crate::body::Gone;
use crate::forms::exit::met_limit;
use crate::msb::answer::{lacking, words};
use crate::sessions::find::look_at;
use crate::sessions::typing::write;
use crate::sessions::{Feed, FeedEvent, SessionEnd, Start};
use agent_client::guest::{Guest, GuestError};
use agent_client::program::draw_session;
use protocol::message::Channel;
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::{Code, Refusal};

pub const FAILED: &str = "core.exec.failed";
/// What a terminal takes for the end of its input.
const END_OF_TEXT: u8 = 4;
const ROWS_DEFAULT: u16 = 24;
const COLUMNS_DEFAULT: u16 = 80;

#[derive(Debug, Deserialize)]
pub struct Ask {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    /// `NAME=VALUE` each.
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    tty: bool,
    #[serde(default)]
    rows: u16,
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rlimits: Vec<serde::de::IgnoredAny>,
}

#[derive(Serialize)]
struct Data {
    data: Octets,
}

/// A program that was started.
struct Started {
    session: SessionId,
    guest: Guest,
    feed: Feed,
    is_terminal: bool,
    pid: u32,
}

/// Why a program was not started, as the clients read it.
pub fn failure(refusal: &Refusal, errno: Option<i32>) -> Value {
    use nix::libc::{EACCES, ENOENT, ENOEXEC, ENOMEM, ENOTDIR};
    let kind = match errno {
        Some(ENOENT | ENOTDIR) => "not_found",
        Some(EACCES) => "permission_denied",
        Some(ENOEXEC) => "not_executable",
        Some(ENOMEM) => "out_of_memory",
        _ if refusal.code == Code::Invalid => "bad_args",
        _ => "other",
    };
    json!({ "kind": kind, "errno": errno, "message": words(refusal) })
}

pub async fn run(link: &Link, number: u32, ask: Ask, incoming: Incoming) {
    let mut errno = None;
    let started = link
        .recorded("msb_exec", false, |inside, trail| {
            let errno = &mut errno;
            async move {
                let start = ask.start(inside.user.clone(), inside.workdir.clone())?;
                trail.program(&start.program);
                let (session, guest) = (start.session.clone(), inside.guest.clone());
                let is_terminal = ask.tty;
                let starting = guest.clone();
                // It is not cancelled half-way.
                let joined = tokio::spawn(async move { starting.start(&start).await }).await;
                let started = joined.unwrap_or(Err(GuestError::NoEntropy)).map_err(|error| {
                    if let GuestError::Fault(fault) = &error {
                        *errno = fault.spawn.as_ref().map(|spawn| spawn.errno).or(fault.errno);
                    }
                    Refusal::from(error)
                })?;
                let mut found = look_at(&link.seat.api, &link.seat.which, &session).await?;
                found.inside = Some(inside);
                let channels: Vec<_> = found
                    .session
                    .channels()
                    .iter()
                    .map(|channel| (*channel, Start::Offset(0)))
                    .collect();
                let memory = &link.seat.memory;
                let feed = Feed::open(&link.seat.api, found, &channels, true, memory).await?;
                Ok(Started { session, guest, feed, is_terminal, pid: started.pid })
            }
        })
        .await;
    // A client that is gone needs no message.
    let _ = match started {
        Ok(started) => follow(link, number, started, incoming).await,
        Err(refusal) => link.send(number, FAILED, &failure(&refusal, errno)).await,
    };
}

impl Ask {
    fn start(&self, user: Option<String>, workdir: Option<String>) -> Result<Begin, Refusal> {
        if self.cmd.is_empty() {
            return Err(Refusal::invalid("cmd is empty; it names a program"));
        }
        if !self.rlimits.is_empty() {
            return Err(lacking("rlimits of a program"));
        }
        let mut env = Vec::new();
        for variable in &self.env {
            let (name, value) = variable
                .split_once('=')
                .ok_or_else(|| Refusal::invalid(format!("env: {variable:?} must be NAME=VALUE")))?;
            env.push((name.into(), value.into()));
        }
        let or = |number: u16, usual| if number == 0 { usual } else { number };
        let stdio = if self.tty {
            let rows = or(self.rows, ROWS_DEFAULT);
            let columns = or(self.cols, COLUMNS_DEFAULT);
            Stdio::Pty { size: TerminalSize { rows, columns } }
        } else {
            Stdio::Pipes { stdin: true }
        };
        let argv = std::iter::once(&self.cmd).chain(&self.args).map(String::as_str);
        Ok(Begin {
            session: draw_session()?,
            program: Program::argv(argv),
            cwd: self.cwd.clone().or(workdir).map(Into::into),
            env,
            user: self.user.clone().or(user),
            stdio,
            deadline_ms: None,
            spool: SpoolSpec::default(),
            holders: vec![RECORDED_HOLDER.to_owned()],
            tied: false,
            limits: GroupLimits::default(),
        })
    }
}

/// Brings what a program writes to the client, and what the client types to the program, until it ends.
async fn follow(
    link: &Link,
    number: u32,
    started: Started,
    incoming: Incoming,
) -> Result<(), Gone> {
    let Started { session, guest, mut feed, is_terminal, pid } = started;
    let Incoming { inputs, mut controls } = incoming;
    link.send(number, "core.exec.started", &json!({ "pid": pid })).await?;
    let typing = type_all(link, number, &guest, &session, is_terminal, inputs);
    tokio::pin!(typing);
    loop {
        let event = tokio::select! {
            event = feed.next() => event,
            () = &mut typing => continue,
            Some(control) = controls.recv() => {
                // What has ended meanwhile takes none, and its end is on the way to the client.
                let _ = carry_out(&guest, &session, control).await;
                continue;
            }
        };
        match event {
            Some(FeedEvent::Output { channel, bytes, .. }) => {
                link.send(number, word(channel), &Data { data: Octets(bytes) }).await?;
            }
            Some(FeedEvent::Gap { channel, from, to }) => {
                let words = format!("\n[{} bytes of output no longer exist]\n", to - from);
                let data = Data { data: Octets(words.into_bytes()) };
                link.send(number, word(channel), &data).await?;
            }
            Some(FeedEvent::Waiting) => {}
            Some(FeedEvent::Ended(SessionEnd::Known(record))) => {
                if let Cause::SpawnFailed { failure: spawn } = &record.cause {
                    let refusal = Refusal::new(Code::SpawnFailed, "the program did not start");
                    return link.send(number, FAILED, &failure(&refusal, Some(spawn.errno))).await;
                }
                if let Some(words) = met_limit(&record.cause) {
                    let data = Data { data: Octets(format!("\n[{words}]\n").into_bytes()) };
                    link.send(number, word(Channel::Stderr), &data).await?;
                }
                let code = record.cause.shell_code();
                return link.send(number, "core.exec.exited", &json!({ "code": code })).await;
            }
            Some(FeedEvent::Ended(SessionEnd::Unknown { .. }) | FeedEvent::Running) | None => {
                let message = "the sandbox has ended, and the program with it";
                let error = json!({ "kind": "invalid_session", "message": message });
                return link.send(number, "core.error", &error).await;
            }
        }
    }
}

fn word(channel: Channel) -> &'static str {
    match channel {
        Channel::Stdout | Channel::Terminal => "core.exec.stdout",
        Channel::Stderr => "core.exec.stderr",
    }
}

async fn carry_out(guest: &Guest, session: &SessionId, control: Control) -> Result<(), GuestError> {
    let session = session.clone();
    match control {
        Control::Signal(signal) => {
            guest.signal(Signal { session, signal, target: Target::Tree }).await
        }
        Control::Size { rows, columns } => {
            let size = TerminalSize { rows, columns };
            guest.resize(Resize { session, size, redraw: false }).await
        }
    }
}

/// Types what comes. Nothing at all is the end of the input. It never returns: the end of the program ends it.
async fn type_all(
    link: &Link,
    number: u32,
    guest: &Guest,
    session: &SessionId,
    is_terminal: bool,
    mut inputs: tokio::sync::mpsc::Receiver<Input>,
) {
    while let Some(input) = inputs.recv().await {
        let is_end = input.bytes.is_empty();
        let bytes = if is_end && is_terminal { &[END_OF_TEXT][..] } else { &input.bytes };
        let ends = is_end && !is_terminal;
        if let Err(refusal) = write(link.seat.api.typists(), guest, session, bytes, ends).await {
            let error = json!({ "message": words(&refusal) });
            let _ = link.send(number, "core.exec.stdin.error", &error).await;
        }
        if ends {
            break;
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            cmd: "true".to_owned(),
            args: vec!["a".to_owned()],
            env: vec!["A=b=c".to_owned()],
            cwd: None,
            user: None,
            tty: false,
            rows: 0,
            cols: 0,
            rlimits: Vec::new(),
        }
    }

    #[test]
    fn a_request_is_a_program_with_the_defaults_of_the_sandbox() {
        let start = ask().start(Some("me".to_owned()), Some("/srv".to_owned())).unwrap();
        assert_eq!(start.program, Program::argv(["true", "a"]));
        assert_eq!(start.env, [("A".into(), "b=c".into())]);
        assert_eq!((start.user.as_deref(), start.cwd), (Some("me"), Some("/srv".into())));
        assert_eq!(start.stdio, Stdio::Pipes { stdin: true });
        let own = Ask { cwd: Some("/".to_owned()), tty: true, ..ask() };
        let start = own.start(None, Some("/srv".to_owned())).unwrap();
        assert_eq!(start.cwd, Some("/".into()));
        assert_eq!(start.stdio, Stdio::Pty { size: TerminalSize { rows: 24, columns: 80 } });
    }

    #[test]
    fn what_is_no_program_is_refused_with_its_kind() {
        let start = |ask: Ask| ask.start(None, None).unwrap_err();
        let empty = start(Ask { cmd: String::new(), ..ask() });
        assert_eq!(failure(&empty, None)["kind"], "bad_args");
        let variable = start(Ask { env: vec!["A".to_owned()], ..ask() });
        assert_eq!(failure(&variable, None)["kind"], "bad_args");
        let limits = start(Ask { rlimits: vec![serde::de::IgnoredAny], ..ask() });
        assert_eq!(limits.code, Code::Unsupported);
        let gone = Refusal::new(Code::SpawnFailed, "no");
        assert_eq!(failure(&gone, Some(nix::libc::ENOENT))["kind"], "not_found");
    }
}
