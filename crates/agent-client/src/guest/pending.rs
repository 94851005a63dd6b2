//! An answer that has not come yet.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol::{Reply, RequestId};

use super::GuestError;
use crate::link::Link;

/// Resolves to the answer of a queued request. Dropping it does not take the request back; its
/// answer is then ignored.
#[derive(Debug)]
#[must_use = "the answer may be a refusal"]
pub struct Pending<T> {
    link: Link,
    id: RequestId,
    /// The link lets only the reply pass that the request expects, so this has one case that counts.
    pick: fn(Reply) -> Option<T>,
    taken: bool,
}

impl<T> Pending<T> {
    pub(super) fn new(link: Link, id: RequestId, pick: fn(Reply) -> Option<T>) -> Self {
        Self { link, id, pick, taken: false }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, GuestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.link.poll_answer(self.id, cx));
        self.taken = true;
        let what = "an answer to another question";
        Poll::Ready(match answer {
            Ok(reply) => (self.pick)(reply).ok_or(GuestError::Malformed { what }),
            Err(failure) => Err(failure.into()),
        })
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.taken {
            self.link.ignore_answer(self.id);
        }
    }
}
