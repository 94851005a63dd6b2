//! Takes a session's keyboard, sends input to it, and notices when another client takes it.
//!
//! A separate task writes, so a program that does not read its input blocks neither the screen nor
//! the keys that detach.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use protocol::{FaultCode, SessionId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use agent_client::guest::{Guest, GuestError, Writer};

/// Pieces that wait for the writing task, in addition to the writer's own buffer.
const PIECES_WAITING_MAX: usize = 8;

/// How soon a person who does not type learns that the keyboard was taken.
const LOSS_CHECKED_EVERY: Duration = Duration::from_millis(200);

/// How long the last keys before detaching may take to reach the program.
const LET_GO_MAX: Duration = Duration::from_secs(1);
const SETTLED_CHECKED_EVERY: Duration = Duration::from_millis(5);

/// The keyboard of a session, taken or not.
pub(super) struct KeyboardInput {
    guest: Guest,
    session: SessionId,
    hand: Option<InputTask>,
    /// Whether typed keys go to the program, for the writer of its output.
    is_ours: Arc<AtomicBool>,
}

/// The result of taking the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyboardState {
    Ours,
    SomebodyElses,
    /// The program has ended or takes no more input.
    Closed,
}

struct InputTask {
    pieces: mpsc::Sender<Vec<u8>>,
    lost: mpsc::Receiver<GuestError>,
    task: JoinHandle<()>,
}

impl KeyboardInput {
    /// Not taken yet; `is_ours` says whether it certainly will be.
    pub(super) fn new(guest: &Guest, session: &SessionId, is_ours: bool) -> Self {
        let is_ours = Arc::new(AtomicBool::new(is_ours));
        Self { guest: guest.clone(), session: session.clone(), hand: None, is_ours }
    }

    /// Follows whether the keyboard is ours.
    pub(super) fn has_keyboard_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_ours)
    }

    pub(super) fn has_keyboard(&self) -> bool {
        self.hand.is_some()
    }

    /// Takes the keyboard if it is free; with `by_force`, from its current holder.
    pub(super) async fn take(&mut self, by_force: bool) -> Result<KeyboardState> {
        let writer = match self.guest.input(&self.session, None, by_force).await {
            Ok((writer, _)) => writer,
            Err(error) if error.fault_code() == Some(FaultCode::Gone) => {
                self.is_ours.store(false, Ordering::Release);
                return Ok(KeyboardState::Closed);
            }
            Err(error) if is_taken(&error) && !by_force => return Ok(KeyboardState::SomebodyElses),
            Err(error) => return Err(error.into()),
        };
        let (pieces, waiting) = mpsc::channel(PIECES_WAITING_MAX);
        let (report, lost) = mpsc::channel(1);
        let (guest, session) = (self.guest.clone(), self.session.clone());
        let task = tokio::spawn(async move {
            if let Some(writer) = write(writer, waiting, report).await {
                settle(&guest, &session, &writer).await;
            }
        });
        self.hand = Some(InputTask { pieces, lost, task });
        self.is_ours.store(true, Ordering::Release);
        Ok(KeyboardState::Ours)
    }

    /// A way to type that does not borrow the keyboard, whose loss is awaited at the same time. It does not
    /// keep the keyboard, because giving it up waits until nobody does.
    pub(super) fn keys(&self) -> Option<mpsc::WeakSender<Vec<u8>>> {
        self.hand.as_ref().map(|hand| hand.pieces.downgrade())
    }

    /// Returns when the keyboard is no longer ours. Never returns without one.
    pub(super) async fn lost(&mut self) -> Option<GuestError> {
        let Some(hand) = &mut self.hand else { return std::future::pending().await };
        let reason = hand.lost.recv().await;
        self.hand = None;
        self.is_ours.store(false, Ordering::Release);
        reason
    }

    /// Types the last bytes and releases the keyboard when the program has them all. Does not wait
    /// for a program that does not read.
    pub(super) async fn release(&mut self, last: Vec<u8>) {
        self.is_ours.store(false, Ordering::Release);
        let Some(InputTask { pieces, lost, task }) = self.hand.take() else { return };
        let typed = async move {
            if pieces.send(last).await.is_ok() {
                drop(pieces);
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(LET_GO_MAX, typed).await;
        drop(lost);
    }
}

/// Types as soon as there is room, and clears what was typed. Cancel safe: nothing is typed then.
/// Never returns without a keyboard.
pub(super) async fn type_in(keys: Option<&mpsc::WeakSender<Vec<u8>>>, bytes: &mut Vec<u8>) {
    match keys.and_then(mpsc::WeakSender::upgrade) {
        Some(keys) => match keys.reserve().await {
            Ok(permit) => permit.send(std::mem::take(bytes)),
            // The writing task has ended; `lost` has the reason.
            Err(_) => bytes.clear(),
        },
        None => std::future::pending().await,
    }
}

/// Sends input until the channel closes, then returns the writer.
async fn write(
    mut writer: Writer,
    mut waiting: mpsc::Receiver<Vec<u8>>,
    report: mpsc::Sender<GuestError>,
) -> Option<Writer> {
    let mut check = tokio::time::interval(LOSS_CHECKED_EVERY);
    loop {
        let written = tokio::select! {
            bytes = waiting.recv() => match bytes {
                Some(bytes) => writer.write(&bytes).await,
                None => return Some(writer),
            },
            // An empty write sends nothing to the agent; it shows whether the stream still exists.
            _ = check.tick() => match poll_fn(|cx| Poll::Ready(writer.poll_write(&[], cx))).await {
                Poll::Ready(Err(error)) => Err(error),
                _ => Ok(()),
            },
        };
        if let Err(error) = written {
            let _ = report.send(error).await;
            return None;
        }
    }
}

/// Waits until the program has been given all that was written. Acknowledgements come in batches,
/// so the agent is asked: it lets an input begin only at its current offset.
async fn settle(guest: &Guest, session: &SessionId, writer: &Writer) {
    let Some(end) = writer.offset() else { return };
    while let Err(error) = guest.input(session, Some(end), false).await
        && error.fault_code() == Some(FaultCode::Conflict)
    {
        tokio::time::sleep(SETTLED_CHECKED_EVERY).await;
    }
}

/// Whether a refusal means that another client has the keyboard.
fn is_taken(error: &GuestError) -> bool {
    matches!(error.fault_code(), Some(FaultCode::Conflict | FaultCode::Exists | FaultCode::Limit))
}
