//! How an owner changes its sandbox while that lives: its times to live, and what it may reach.

use super::Owner;
use crate::event::{Facts, Kind};
use crate::{Record, SandboxError, State, Update};
use host::instant::now_ms;

impl Owner {
    /// Changes what the next bridge would know about, or nothing.
    pub(super) async fn update(&mut self, update: Update) -> Result<Record, SandboxError> {
        let Update { ttl_ms, idle_ttl_ms, egress } = update;
        let (before, has_ended) = (self.stored.clone(), self.has_ended());
        let record = &mut self.stored.record;
        if has_ended || record.state == State::Stopping {
            let (which, state) = (record.which(), record.state.clone());
            return Err(SandboxError::NotRunning { which, state });
        }
        if let Some(ttl_ms) = ttl_ms {
            record.expires_at_ms = (ttl_ms > 0).then(|| now_ms().saturating_add(ttl_ms));
            let since = record.created_at_ms;
            record.ttl_ms = record.expires_at_ms.map(|at_ms| at_ms.saturating_sub(since));
        }
        if let Some(idle_ttl_ms) = idle_ttl_ms {
            record.idle_ttl_ms = (idle_ttl_ms > 0).then_some(idle_ttl_ms);
        }
        let cause = egress.as_ref().map(|rules| match rules.as_slice() {
            [] => "it may reach nothing".to_owned(),
            rules => format!("it may reach {}", rules.join(", ")),
        });
        let changes_egress = egress.is_some();
        if let Some(rules) = egress {
            record.egress = rules;
        }
        self.stored.note_due();
        // A change that the next bridge would not know about is refused.
        let path = self.place.directories.state.clone();
        if let Err(source) = self.stored.save(&path).await {
            self.stored = before;
            return Err(SandboxError::Files { action: "write", path, source });
        }
        self.save_again = None;
        if changes_egress && let Err(error) = self.change_egress().await {
            self.stored.record.egress = before.record.egress;
            // The change itself is what failed.
            let _ = self.save().await;
            return Err(error);
        }
        // The caller wants it to live that long from now on.
        self.place.presence.touch();
        self.expire_as_recorded();
        self.display();
        let (ttl_ms, idle_ttl_ms) = (self.stored.record.ttl_ms, self.stored.record.idle_ttl_ms);
        self.happened(Kind::Changed, Facts { cause, ttl_ms, idle_ttl_ms, ..Facts::none() });
        Ok(self.place.presence.show(self.stored.record.clone()))
    }
}
