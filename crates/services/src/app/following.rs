//! Follows an app's output and end as a holder of its session: nothing is lost, and the newest output is kept
//! for display.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use protocol::message::Channel;
use protocol::requests::{Origin, Role};
use protocol::{ExitRecord, SessionId};

use super::limits::PIECES_AT_ONCE_MAX;
use super::tail::SharedTail;
use agent_client::guest::{Guest, GuestError, Output, Pending, Piece};

/// The holder that this part is. A session with it is an app's.
pub const HOLDER: &str = "app";

/// See the module's description.
#[derive(Debug)]
pub struct LogFollower {
    outputs: Vec<FollowedOutput>,
    waiting: Pending<ExitRecord>,
    record: Option<ExitRecord>,
    tail: SharedTail,
}

#[derive(Debug)]
struct FollowedOutput {
    channel: Channel,
    output: Output,
    reached: u64,
    is_open: bool,
}

impl LogFollower {
    /// Follows a session from the oldest output that was not read.
    pub async fn begin(
        guest: &Guest,
        session: &SessionId,
        tail: SharedTail,
    ) -> Result<Self, GuestError> {
        let mut outputs = Vec::new();
        for channel in [Channel::Stdout, Channel::Stderr] {
            let role = Role::Holder { name: HOLDER.to_owned() };
            let (output, subscribed) =
                guest.subscribe(session, channel, Origin::Oldest {}, role).await?;
            let reached = subscribed.from;
            outputs.push(FollowedOutput { channel, output, reached, is_open: true });
        }
        let waiting = guest.wait_now(session)?;
        Ok(Self { outputs, waiting, record: None, tail })
    }

    /// Resolves when the app has ended and all its output is read. Cancel safe.
    pub async fn ended(&mut self) -> Result<ExitRecord, GuestError> {
        poll_fn(|cx| self.poll_ended(cx)).await
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Result<ExitRecord, GuestError>> {
        let mut left = PIECES_AT_ONCE_MAX;
        for output in &mut self.outputs {
            output.poll(&self.tail, &mut left, cx);
        }
        if left == 0 {
            // There is more, and others wait for their turn.
            cx.waker().wake_by_ref();
        }
        if self.record.is_none() {
            match Pin::new(&mut self.waiting).poll(cx) {
                Poll::Ready(Ok(record)) => self.record = Some(record),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        match &self.record {
            Some(record) if self.outputs.iter().all(|output| output.has_all(record)) => {
                Poll::Ready(Ok(record.clone()))
            }
            _ => Poll::Pending,
        }
    }
}

impl FollowedOutput {
    fn poll(&mut self, tail: &SharedTail, left: &mut usize, cx: &mut Context<'_>) {
        while self.is_open && *left > 0 {
            let Poll::Ready(piece) = self.output.poll_next(cx) else { return };
            *left -= 1;
            match piece {
                Piece::Bytes { offset, bytes } => {
                    self.reached = offset.saturating_add(bytes.len() as u64);
                    tail.add(&bytes);
                }
                Piece::Gap { to, .. } => self.reached = to,
                // Then only the end of the session remains.
                Piece::End | Piece::Failed(_) => self.is_open = false,
            }
        }
    }

    fn has_all(&self, record: &ExitRecord) -> bool {
        !self.is_open || record.complete_at(self.channel).is_some_and(|at| self.reached >= at)
    }
}
