//! Decides whether an attempt is repeated, and after which pause.

use std::time::Duration;

use super::error::PullError;
use super::limits::{ATTEMPTS_MAX, RETRY_AFTER_MAX, RETRY_PAUSE_MAX};
use super::progress::ProgressSender;

/// Attempts at one thing.
pub(super) struct Retries<'a> {
    attempts: u32,
    pause: Duration,
    first_pause: Duration,
    /// Something has passed before: who is gone just now may be back.
    was_troubled: bool,
    teller: ProgressSender<'a>,
}

impl<'a> Retries<'a> {
    pub(super) fn new(first_pause: Duration, teller: ProgressSender<'a>) -> Self {
        Self { attempts: 1, pause: first_pause, first_pause, was_troubled: false, teller }
    }

    /// An attempt has brought enough to begin counting again.
    pub(super) fn renew(&mut self) {
        (self.attempts, self.pause) = (0, self.first_pause);
    }

    /// Waits for the next attempt, or returns the error if there is none.
    pub(super) async fn after(&mut self, error: PullError) -> Result<(), PullError> {
        let pause = error.retry_after().map_or(self.pause, |wanted| wanted.max(self.pause));
        let is_away = self.was_troubled && matches!(error, PullError::Unreachable { .. });
        let is_passing = error.is_passing() || is_away;
        if !is_passing || self.attempts >= ATTEMPTS_MAX || pause > RETRY_AFTER_MAX {
            return Err(error);
        }
        self.attempts += 1;
        self.was_troubled = true;
        self.pause = (self.pause * 2).min(RETRY_PAUSE_MAX);
        self.teller.trouble(error.to_string());
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
