//! What the sandboxes of a fleet do while their node has no lease: they are paused, and go on with the next.
//!
//! The node orders both. One that was paused before, by hand or asleep, is left as it is; until the node has a lease
//! again nobody resumes or wakes it.

use std::sync::atomic::Ordering;

use tokio::task::JoinSet;

use super::Registry;
use crate::owner::{Order, Reply};
use crate::{Record, SandboxError, State};

impl Registry {
    /// Pauses what runs. Called again while there is no lease, for what came to run meanwhile. Returns those that could
    /// not be paused.
    pub async fn hold(&self) -> Vec<(Record, SandboxError)> {
        self.0.is_held.store(true, Ordering::Relaxed);
        self.order_each(|state| *state == State::Running, |reply| Order::Hold { reply }).await
    }

    /// Has continue what [`Registry::hold`] has paused, also by an earlier bridge. Returns those that could not.
    pub async fn go_on(&self) -> Vec<(Record, SandboxError)> {
        self.0.is_held.store(false, Ordering::Relaxed);
        self.order_each(State::is_held, |reply| Order::GoOn { reply }).await
    }

    async fn order_each(
        &self,
        is_meant: fn(&State) -> bool,
        order: fn(Reply) -> Order,
    ) -> Vec<(Record, SandboxError)> {
        let mut ordered = JoinSet::new();
        let of_fleet = |record: &Record| record.incarnation.is_some() && is_meant(&record.state);
        for record in self.list(None).into_iter().filter(of_fleet) {
            let registry = self.clone();
            ordered.spawn(async move {
                let done = registry.order(&record.which(), order).await;
                done.err().map(|error| (record, error))
            });
        }
        let mut failed = Vec::new();
        while let Some(done) = ordered.join_next().await {
            failed.extend(done.ok().flatten());
        }
        failed
    }

    pub(super) fn may_go_on(&self, record: &Record) -> Result<(), SandboxError> {
        if record.incarnation.is_some() && self.0.is_held.load(Ordering::Relaxed) {
            return Err(SandboxError::Held { which: record.which() });
        }
        Ok(())
    }
}
