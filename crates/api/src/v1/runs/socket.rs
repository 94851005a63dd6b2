//! A run on a WebSocket: the client's first message is the request, then events go out as they
//! come, and orders come in.
//!
//! Both directions go on independently: a client that does not read can still send.

use protocol::ContextName;
use protocol::repl::AnswerInput;
use tokio::time::timeout;

use super::ask::{RunOrder, RunRequest};
use super::carried::{Beginning, Carried, interrupt};
use super::event::RunEvent;
use super::limits::FIRST_WORD_MAX;
use super::narrator::Narrator;
use crate::body::Gone;
use crate::shape::parse;
use crate::websocket::{
    CLOSE_FAILED, CLOSE_NORMAL, CLOSE_POLICY, ClientMessage, Reader, Socket, Writer, ping_clock,
};
use agent_client::guest::Guest;
use sandbox::refusal::{Code, Refusal};

/// Reads the request, carries the run, and closes the socket after its end.
pub async fn attend(socket: Socket, beginning: Beginning, context: ContextName) {
    let Socket { mut reader, mut writer } = socket;
    let request = match first_word(&mut reader).await {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err(problem) => return refuse(writer, None, &problem, CLOSE_POLICY).await,
    };
    let mut carried = match Carried::begin(beginning, context, request).await {
        Ok(carried) => carried,
        Err(problem) => return refuse(writer, None, &problem, CLOSE_FAILED).await,
    };
    let run = carried.queued().run;
    let client =
        Client { guest: carried.guest().clone(), context: carried.context().clone(), run, reader };
    let ended = tokio::select! {
        sent = tell(&mut carried, &mut writer) => match sent {
            Ok(None) => SocketEnd::Whole,
            Ok(Some(problem)) => SocketEnd::Failed(problem),
            Err(Gone) => SocketEnd::Gone,
        },
        outcome = client.read() => match outcome {
            Ok(()) => SocketEnd::Gone,
            Err(problem) => SocketEnd::Refused(problem),
        },
    };
    match ended {
        SocketEnd::Whole => return writer.close(CLOSE_NORMAL, "").await,
        SocketEnd::Failed(problem) => {
            return refuse(writer, Some(run), &problem, CLOSE_FAILED).await;
        }
        SocketEnd::Refused(problem) => refuse(writer, Some(run), &problem, CLOSE_POLICY).await,
        SocketEnd::Gone => drop(writer),
    }
    if carried.goes_on() {
        carried.drain().await;
    }
}

/// Why nothing more is sent.
enum SocketEnd {
    /// The run is over, and all of it has been sent.
    Whole,
    /// Its events have broken off.
    Failed(Refusal),
    /// The client has sent an invalid order.
    Refused(Refusal),
    /// The client is gone.
    Gone,
}

/// `None` when the client is gone before it has sent anything.
async fn first_word(reader: &mut Reader) -> Result<Option<RunRequest>, Refusal> {
    let Ok(first) = timeout(FIRST_WORD_MAX, reader.next()).await else {
        let seconds = FIRST_WORD_MAX.as_secs();
        let message =
            format!("the client sent nothing for {seconds} s; the first message must be the run");
        return Err(Refusal::new(Code::RequestTimeout, message));
    };
    match first {
        Some(ClientMessage::Text(text)) => parse(text.as_bytes()).map(Some),
        Some(ClientMessage::Binary(_)) => {
            Err(Refusal::invalid("the run must be a JSON text message"))
        }
        None => Ok(None),
    }
}

/// Sends the client the events of the run; returns after the last one, or with the reason why there is
/// none.
async fn tell(carried: &mut Carried, writer: &mut Writer) -> Result<Option<Refusal>, Gone> {
    let mut narrator = Narrator::default();
    let mut pings = ping_clock();
    writer.tell(&RunEvent::queued(carried.queued())).await?;
    loop {
        tokio::select! {
            event = carried.next() => match event {
                Ok(Some(event)) => {
                    if let Some(captured) = carried.take_captured(&event) {
                        writer.tell(&captured).await?;
                    }
                    for captured in &narrator.tell(event) {
                        writer.tell(captured).await?;
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(carried.explained(error).await)),
            },
            _ = pings.tick() => writer.ping().await?,
        }
    }
}

/// The client's side of the socket.
struct Client {
    guest: Guest,
    context: ContextName,
    run: u64,
    reader: Reader,
}

impl Client {
    /// Carries the client's orders out. Returns when the client is gone, or with the reason why nothing more is
    /// read from it.
    async fn read(mut self) -> Result<(), Refusal> {
        while let Some(message) = self.reader.next().await {
            match message {
                ClientMessage::Text(text) => self.obey(parse(text.as_bytes())?).await?,
                ClientMessage::Binary(_) => {
                    return Err(Refusal::invalid(
                        "the client's messages must be JSON text messages",
                    ));
                }
            }
        }
        Ok(())
    }

    /// An order that comes too late, because the run or the question is over, is of no effect.
    async fn obey(&self, order: RunOrder) -> Result<(), Refusal> {
        let context = self.context.clone();
        let done = match order {
            RunOrder::Input { request, line } => {
                let line = line.map(Into::into);
                let ask = AnswerInput { context, run: self.run, request, line };
                self.guest.answer_input(ask).await
            }
            RunOrder::Interrupt { grace } => {
                grace.check()?;
                let run = Some(self.run);
                interrupt(&self.guest, context, run, grace.into()).await.map(|_| ())
            }
        };
        match done {
            Err(error) if error.fault_code().is_none() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Says why, and closes the socket.
async fn refuse(mut writer: Writer, run: Option<u64>, problem: &Refusal, code: u16) {
    // A client that does not read gets the close alone.
    if timeout(FIRST_WORD_MAX, writer.tell(&RunEvent::problem(run, problem))).await.is_ok() {
        writer.close(code, problem.code.name()).await;
    }
}
