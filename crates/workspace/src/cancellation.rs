//! Ends the exchanges of one workspace. An exchange checks it before each file, and stops there.

use std::sync::Arc;

use tokio::sync::watch;

use super::WorkspaceError;

/// Clones share one state.
#[derive(Clone, Debug)]
pub struct Cancellation(Arc<watch::Sender<bool>>);

impl Cancellation {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Cancels the exchanges. This cannot be undone.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    pub fn check(&self) -> Result<(), WorkspaceError> {
        if self.is_cancelled() { Err(WorkspaceError::Ended) } else { Ok(()) }
    }

    /// Resolves when the exchanges are cancelled.
    pub async fn cancelled(&self) {
        // The sender is ours, so it lives as long as the waiter.
        let _ = self.0.subscribe().wait_for(|is_cancelled| *is_cancelled).await;
    }
}
