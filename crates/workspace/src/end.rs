//! The word that ends the exchanges of one workspace: they stop before the next file.

use std::sync::Arc;

use tokio::sync::watch;

use super::WorkspaceError;

/// Clones are the same word.
#[derive(Clone, Debug)]
pub struct End(Arc<watch::Sender<bool>>);

impl End {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Says it. It is never taken back.
    pub fn say(&self) {
        self.0.send_replace(true);
    }

    pub fn is_said(&self) -> bool {
        *self.0.borrow()
    }

    pub fn check(&self) -> Result<(), WorkspaceError> {
        if self.is_said() { Err(WorkspaceError::Ended) } else { Ok(()) }
    }

    /// Resolves when it is said.
    pub async fn said(&self) {
        // The sender is ours: it lives as long as whoever waits.
        let _ = self.0.subscribe().wait_for(|said| *said).await;
    }
}
