//! Pushes the remaining changes of a sandbox without a machine to its bucket. It retries with growing
//! pauses, and at once on request. It ends when the bucket has everything or the delivery is cancelled.

use std::path::PathBuf;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::cancellation::Cancellation;
use super::outcome::{Answer, ExchangeOutcome, due};
use super::s3::limits::{AGAIN_FIRST, AGAIN_MAX};
use super::{Report, Staging, Workspace};

/// The task that pushes what a bucket lacks.
pub(super) struct DeliveryTask {
    pub workspace: Workspace,
    pub owner: String,
    pub state: PathBuf,
    pub end: Cancellation,
    pub requests: mpsc::Receiver<Answer>,
    pub say: mpsc::Sender<ExchangeOutcome>,
}

impl DeliveryTask {
    pub async fn run(mut self) {
        let Some(mut staging) = self.find().await else { return };
        let mut answer = None;
        loop {
            let (report, pushed) = staging.push_until(&self.end, answer.is_some()).await;
            ExchangeOutcome::report(&self.say, report, pushed, answer.take()).await;
            let again = staging.again().map(|pause| Instant::now() + pause);
            if again.is_none() {
                // Later callers ask another task; earlier ones are answered.
                self.requests.close();
            }
            answer = tokio::select! {
                () = self.end.cancelled() => return,
                answer = self.requests.recv() => match (answer, again) {
                    (None, None) => return,
                    (answer, _) => answer,
                },
                () = due(again) => None,
            };
        }
    }

    /// The files; `None` if there are none, or on cancellation.
    async fn find(&mut self) -> Option<Staging> {
        let (mut wait, mut is_told) = (AGAIN_FIRST, false);
        loop {
            match Staging::find(&self.workspace, &self.owner, &self.state).await {
                Ok(found) => return found,
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        ExchangeOutcome::report(&self.say, Report::default(), Err(error), None)
                            .await;
                    }
                }
            }
            tokio::select! {
                () = self.end.cancelled() => return None,
                () = sleep(wait) => wait = (wait * 2).min(AGAIN_MAX),
            }
        }
    }
}
