//! The outcome of an exchange, for the caller who requested it and for the record. The mirror of a running
//! sandbox and the delivery of a stopped one's bucket both report it.

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::{Report, WorkspaceError};

/// An exchange that changed something, failed, or was asked for.
#[derive(Debug)]
pub struct ExchangeOutcome {
    pub report: Report,
    pub failed: Option<WorkspaceError>,
    /// The caller, if there is one. The owner records the exchange and then answers.
    answer: Option<Answer>,
}

pub(super) type Answer = oneshot::Sender<Result<Report, WorkspaceError>>;

impl ExchangeOutcome {
    /// Reports an exchange, unless nothing happened and nobody asked.
    pub(super) async fn report(
        to: &mpsc::Sender<Self>,
        report: Report,
        done: Result<(), WorkspaceError>,
        answer: Option<Answer>,
    ) {
        let failed = done.err();
        if !report.is_empty() || failed.is_some() || answer.is_some() {
            // If the receiver is gone, nobody records it.
            let _ = to.send(Self { report, failed, answer }).await;
        }
    }

    /// Answers the caller.
    pub fn answer(self) {
        let Self { report, failed, answer } = self;
        if let Some(answer) = answer {
            let _ = answer.send(failed.map_or(Ok(report), Err));
        }
    }
}

/// Waits until a point in time; forever without one.
pub(super) async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
