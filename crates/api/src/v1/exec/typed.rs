//! A client's input on its way into a program. A program that does not read delays only its own
//! client.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol::SessionId;
use tokio::time::sleep;

use super::limits::{END_LOOK_PAUSE, END_LOOKS_MAX, INPUT_WAITING_BYTES_MAX};
use agent_client::guest::{Guest, GuestError, Writer};

/// Ends an input, and opens it again where it can be.
type Ending = Pin<Box<dyn Future<Output = Option<Writer>> + Send>>;

/// Bytes that wait for a program, and the way into it.
pub struct Typed {
    guest: Guest,
    session: SessionId,
    /// A terminal goes on after an end of file.
    is_terminal: bool,
    writer: Option<Writer>,
    waiting: VecDeque<u8>,
    /// The input ends behind what waits.
    ends: bool,
    ending: Option<Ending>,
}

impl Typed {
    pub fn new(guest: Guest, session: SessionId, is_terminal: bool) -> Self {
        let (writer, waiting, ends, ending) = (None, VecDeque::new(), false, None);
        Self { guest, session, is_terminal, writer, waiting, ends, ending }
    }

    /// From now on what is typed goes here.
    pub fn connect(&mut self, writer: Writer) {
        self.writer = Some(writer);
    }

    pub fn is_connected(&self) -> bool {
        self.writer.is_some() || self.ending.is_some()
    }

    /// Whether more may be typed now.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < INPUT_WAITING_BYTES_MAX
    }

    /// Types. Bytes typed without an open program are dropped.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.is_connected() {
            self.waiting.extend(bytes);
        }
    }

    /// The end of the input, behind what was typed.
    pub fn end(&mut self) {
        self.ends = self.is_connected();
    }

    /// Passes on typed input, forever; returns why the input was lost. Loses nothing when it is
    /// cancelled.
    pub async fn work(&mut self) -> GuestError {
        poll_fn(|cx| self.poll_work(cx)).await
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<GuestError> {
        loop {
            if let Some(ending) = &mut self.ending {
                self.writer = ready!(ending.as_mut().poll(cx));
                self.ending = None;
            }
            let Some(writer) = &mut self.writer else { return Poll::Pending };
            let (bytes, _) = self.waiting.as_slices();
            if bytes.is_empty() && self.ends {
                self.ends = false;
                self.ending = self.writer.take().map(|writer| {
                    let (guest, session) = (self.guest.clone(), self.session.clone());
                    Box::pin(end(writer, guest, session, self.is_terminal)) as Ending
                });
                continue;
            }
            // An empty write sends nothing to the agent; it shows whether the stream is still open.
            match writer.poll_write(bytes, cx) {
                Poll::Ready(Ok(_)) if bytes.is_empty() => return Poll::Pending,
                Poll::Ready(Ok(count)) => drop(self.waiting.drain(..count)),
                Poll::Ready(Err(error)) => {
                    self.writer = None;
                    self.waiting.clear();
                    self.ends = false;
                    return Poll::Ready(error);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

async fn end(
    writer: Writer,
    guest: Guest,
    session: SessionId,
    is_terminal: bool,
) -> Option<Writer> {
    writer.finish().await.ok()?;
    if !is_terminal {
        return None;
    }
    // The agent presses the end-of-file key and then releases the keyboard. Opening the input
    // before that has happened prevents the key.
    for _ in 0..END_LOOKS_MAX {
        let list = guest.sessions(0).await.ok()?;
        let info = list.sessions.into_iter().find(|info| info.session == session)?;
        if info.keyboard.is_none() {
            break;
        }
        sleep(END_LOOK_PAUSE).await;
    }
    guest.input(&session, None, false).await.ok().map(|(writer, _)| writer)
}
