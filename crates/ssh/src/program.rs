//! `exec` and `shell`: one program in the sandbox, on pipes or a terminal.

use std::future::pending;

use protocol::SessionId;
use protocol::exit::Cause;
use protocol::message::Channel;
use protocol::requests::{Program as Command, Resize, Signal, Start, Stdio, Target};
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Error, Sig};
use tokio::sync::mpsc;

use access::audit::Outcome;
use agent_client::guest::{Guest, GuestError, Writer};
use agent_client::program::{
    Ended, Event, OnDrop, Program, Running, draw_session, ran_out_of_memory,
};
use sandbox::Visit;
use sandbox::refusal::Refusal;

use crate::flow::Input;
use crate::place::{Control, Ends, Place, Setting};

/// The number that SSH gives stderr.
const STDERR: u32 = 1;
/// What `ssh` itself ends with when a connection fails.
const FAILED: u32 = 255;
/// What shells report for a program that cannot be run.
const NOT_RUN: u32 = 127;

/// How a program ended, as SSH says it.
enum End {
    Code(u32),
    Signal { signal: Sig, core_dumped: bool, why: String },
}

/// Runs it to its end and says how that was. Dropping the future kills it, with all that it has started.
pub async fn run(place: Place, command: Command, setting: Setting, ends: Ends) {
    let Ends { writer, handle, input, controls } = ends;
    let mut trail = place.trail("ssh_exec");
    match &command {
        Command::Script { script, .. } => trail.program("sh", Some(script.to_string())),
        _ => trail.program("login shell", None),
    }
    let ended = match trail.visit(&place.door, &place.login).await {
        Ok(visit) => {
            let ended = attend(&visit, command, setting, (&writer, input, controls)).await;
            ended.map_err(|error| {
                let code = if error.fault_code().is_some() { NOT_RUN } else { FAILED };
                (trail.fail(Outcome::Failed, &Refusal::from(&error)), code)
            })
        }
        Err(why) => Err((why, FAILED)),
    };
    let end = match ended {
        Ok(end) => end,
        Err((why, code)) => {
            let why = format!("host-bridge: {why}\r\n");
            let _ = writer.extended_data_bytes(STDERR, why.into_bytes()).await;
            End::Code(code)
        }
    };
    // A client that is gone need not know.
    let _ = say(&writer, &handle, end).await;
}

async fn say(writer: &ChannelWriteHalf<Msg>, handle: &Handle, end: End) -> Result<(), Error> {
    match end {
        End::Code(code) => writer.exit_status(code).await?,
        End::Signal { signal, core_dumped, why } => {
            let id = writer.id();
            let said = handle.exit_signal_request(id, signal, core_dumped, why, String::new());
            said.await.map_err(|()| Error::SendError)?;
        }
    }
    writer.eof().await?;
    writer.close().await
}

async fn attend(
    visit: &Visit,
    command: Command,
    setting: Setting,
    (writer, input, controls): (&ChannelWriteHalf<Msg>, Input, mpsc::Receiver<Control>),
) -> Result<End, GuestError> {
    let session = draw_session()?;
    let plain = Program::new(session.clone(), command);
    let start = Start {
        cwd: visit.workdir.as_deref().map(Into::into),
        user: visit.user.clone(),
        env: setting.variables,
        stdio: setting.terminal.map_or(Stdio::Pipes { stdin: true }, |size| Stdio::Pty { size }),
        ..plain.start
    };
    let mut running = Program { start, on_drop: OnDrop::Kill, ..plain }.begin(&visit.guest)?;
    let typed = running.take_input();
    let beside = async {
        tokio::join!(feed(input, typed), obey(controls, &visit.guest, &session));
        // Neither ends the program.
        pending::<()>().await;
    };
    tokio::select! {
        ended = hand_on(&mut running, writer) => ended,
        () = beside => unreachable!("it never ends"),
    }
}

/// Hands on what the program writes, as fast as the client takes it.
async fn hand_on(running: &mut Running, writer: &ChannelWriteHalf<Msg>) -> Result<End, GuestError> {
    loop {
        let sent = match running.next().await? {
            Some(Event::Output { channel: Channel::Stderr, bytes, .. }) => {
                writer.extended_data_bytes(STDERR, bytes).await
            }
            Some(Event::Output { bytes, .. }) => writer.data_bytes(bytes).await,
            Some(Event::Gap { from, to, .. }) => {
                let lost = format!("host-bridge: {} bytes of output are lost\r\n", to - from);
                writer.extended_data_bytes(STDERR, lost.into_bytes()).await
            }
            Some(Event::Started(_)) => Ok(()),
            Some(Event::Ended(ended)) => return Ok(end_of(&ended)),
            None => return Err(GuestError::Malformed { what: "no exit record" }),
        };
        if sent.is_err() {
            // The connection is gone, and this with it.
            pending::<()>().await;
        }
    }
}

async fn feed(mut input: Input, writer: Option<Writer>) {
    let Some(mut writer) = writer else { return };
    while let Some(bytes) = input.next().await {
        // A program need not read its input; what is left goes nowhere.
        if writer.write(&bytes).await.is_err() {
            while input.next().await.is_some() {}
            return;
        }
    }
    let _ = writer.finish().await;
}

async fn obey(mut controls: mpsc::Receiver<Control>, guest: &Guest, session: &SessionId) {
    while let Some(control) = controls.recv().await {
        let session = session.clone();
        // One that has ended takes none.
        let _ = match control {
            Control::Resize(size) => guest.resize(Resize { session, size, redraw: false }).await,
            Control::Signal(signal) => {
                guest.signal(Signal { session, signal, target: Target::Group }).await
            }
        };
    }
}

fn end_of(ended: &Ended) -> End {
    let killed = |signal, core_dumped, why| match signal_of(signal) {
        Some(signal) => End::Signal { signal, core_dumped, why },
        None => End::Code(ended.shell_code() as u32),
    };
    match &ended.record.cause {
        Cause::Exited { code } => End::Code(*code as u32),
        Cause::Signaled { signal, core_dumped } => killed(*signal, *core_dumped, String::new()),
        Cause::Killed { signal, .. } => killed(*signal, false, String::new()),
        Cause::OutOfMemory { limit_bytes } => killed(9, false, ran_out_of_memory(*limit_bytes)),
        _ => End::Code(ended.shell_code() as u32),
    }
}

/// The signals that clients name, with their numbers on Linux.
const SIGNALS: [(&str, i32); 13] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("ABRT", 6),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
];

pub fn signal_number(signal: &Sig) -> Option<i32> {
    let name = match signal {
        Sig::Custom(name) => name.clone(),
        known => format!("{known:?}"),
    };
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

fn signal_of(number: i32) -> Option<Sig> {
    let (name, _) = SIGNALS.iter().find(|(_, known)| *known == number)?;
    Some(Sig::Custom((*name).to_owned()))
}
