//! How an owner handles its sandbox's workspace: fills it before anything runs, gets the changes
//! back before a stop, and records the reports.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Owner;
use crate::mounted;
use crate::{Event, SandboxError, State, WorkspaceEvent};
use machine::Running;
use workspace::limits::WARNINGS_MAX;
use workspace::{ExchangeOutcome, Mirror, MirrorSettings, Report, WorkspaceError};

/// The answer to a caller's exchange.
pub(crate) type SyncReply = oneshot::Sender<Result<Report, SandboxError>>;

impl Owner {
    /// Gives a new machine its workspace. Ending the sandbox does not wait for that.
    pub(super) async fn open_workspace(
        &mut self,
        running: &Arc<dyn Running>,
    ) -> Result<Option<Mirror>, SandboxError> {
        let Some(ends) = self.ends(running)? else { return Ok(None) };
        if self.stored.record.mounted {
            let machine = self.stored.record.machine;
            let mounting = mounted::mount(machine, &**running, &ends.workspace);
            self.unless_ended(mounting, "workspace was being mounted").await??;
            return Ok(None);
        }
        let state = self.place.directories.state.clone();
        let opened = self
            .unless_ended(Mirror::open(ends, Some(&state)), "workspace was being filled")
            .await?;
        let (mirror, report) = opened?;
        self.warn(&report);
        Ok(Some(mirror))
    }

    /// Reopens the workspace of a machine that an earlier bridge had. If that fails, the machine continues
    /// without it: then nothing is copied back.
    pub(super) async fn reopen_workspace(&mut self, running: &Arc<dyn Running>) -> Option<Mirror> {
        if self.stored.record.mounted {
            return None;
        }
        let state = self.place.directories.state.clone();
        let adopted = match self.ends(running) {
            Ok(None) => return None,
            Ok(Some(ends)) => Mirror::adopt(ends, &state).await.map_err(SandboxError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = &adopted {
            self.trouble(format!("the changes in its workspace are not copied back: {error}"));
        }
        adopted.ok()
    }

    fn ends(&self, running: &Arc<dyn Running>) -> Result<Option<MirrorSettings>, SandboxError> {
        let record = &self.stored.record;
        let Some(name) = &record.workspace else { return Ok(None) };
        let workspace = self.place.workspaces.find(record.namespace.as_str(), name)?;
        let (owner, ended) = (record.id.to_string(), self.place.presence.ended());
        let carried = self.place.workspaces.carried().clone();
        let ends = |guest| MirrorSettings { guest, workspace, owner, ended, carried };
        Ok(running.guest().map(ends))
    }

    /// Removes what a killed bridge left in the workspace of a machine that is gone.
    pub(super) async fn sweep_workspace(&mut self) {
        let record = &self.stored.record;
        let Some(name) = record.workspace.as_ref().filter(|_| !record.mounted) else { return };
        if let Ok(found) = self.place.workspaces.find(record.namespace.as_str(), name) {
            let owner = record.id.to_string();
            let sweeping = move || workspace::sweep(&found.path, &owner);
            let _ = tokio::task::spawn_blocking(sweeping).await;
        }
    }

    /// Ends the exchanges, and records the last reports. After this nothing is copied back.
    pub(super) async fn end_workspace(&mut self, mirror: Option<Mirror>) {
        let Some(mirror) = mirror else { return };
        for outcome in mirror.end().await {
            self.record_outcome(outcome).await;
        }
    }

    pub(super) fn sync(&mut self, reply: SyncReply) {
        if !self.delivery.as_ref().is_some_and(Mirror::takes) {
            self.deliver();
        }
        let record = &self.stored.record;
        if record.mounted && record.state == State::Running {
            // Everything is there already: nothing has to come back.
            return drop(reply.send(Ok(Report::default())));
        }
        let which = record.which();
        let delivery = self.delivery.as_ref().map(Some);
        let mirror = self.life.as_ref().map(|life| life.mirror.as_ref()).or(delivery);
        let outcome = match (mirror, &record.state) {
            (Some(Some(delivery)), State::Stopped { .. }) => Ok(delivery.ask()),
            (Some(_), State::Paused { by_lease: true, .. }) => Err(SandboxError::Held { which }),
            (Some(_), State::Paused { .. }) => Err(SandboxError::Paused { which }),
            (Some(Some(mirror)), State::Running) => Ok(mirror.ask()),
            (Some(None), State::Running) => Err(WorkspaceError::None.into()),
            (_, state) => Err(SandboxError::NotRunning { which, state: state.clone() }),
        };
        match outcome {
            Err(error) => drop(reply.send(Err(error))),
            Ok(answer) => drop(tokio::spawn(async move {
                let answer = answer.await.unwrap_or(Err(WorkspaceError::Ended));
                let _ = reply.send(answer.map_err(SandboxError::from));
            })),
        }
    }

    /// Begins to push the remaining changes of a stopped sandbox to its bucket.
    pub(super) fn deliver(&mut self) {
        let record = &self.stored.record;
        let name =
            record.workspace.as_ref().filter(|_| matches!(record.state, State::Stopped { .. }));
        let found = name.map(|name| self.place.workspaces.find(record.namespace.as_str(), name));
        match found {
            Some(Ok(workspace)) if workspace.bucket.is_some() => {
                let (owner, state) = (record.id.to_string(), self.place.directories.state.clone());
                self.delivery = Some(Mirror::deliver(workspace, owner, state));
            }
            Some(Ok(_)) | None => {}
            Some(Err(error)) => {
                self.trouble(format!(
                    "the changes in its workspace stay in the sandbox for now: {error}"
                ));
            }
        }
    }

    /// Records the outcome of an exchange.
    pub(super) async fn record_outcome(&mut self, outcome: ExchangeOutcome) {
        let (of, name) = (self.stored.record.subject(), self.stored.record.workspace.clone());
        if self.warn(&outcome.report) {
            let _ = self.save().await;
            self.display();
        }
        if !outcome.report.is_empty() {
            let report = outcome.report.clone();
            let event = WorkspaceEvent { name: name.unwrap_or_default(), report };
            (self.place.events)(&Event::Workspace { of, event });
        }
        // The reason for a cancelled exchange is known already.
        let failed = outcome.failed.as_ref();
        if let Some(error) = failed.filter(|error| !matches!(error, WorkspaceError::Ended)) {
            self.trouble(format!("the changes in its workspace were not copied back: {error}"));
        }
        outcome.answer();
    }

    /// Adds new warnings to the record, as far as there is room.
    fn warn(&mut self, report: &Report) -> bool {
        let warnings = &mut self.stored.record.warnings;
        let before = warnings.len();
        for warning in report.warnings() {
            let of_workspace = warnings.iter().filter(|known| known.starts_with("workspace: "));
            if of_workspace.count() >= WARNINGS_MAX {
                break;
            }
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings.len() > before
    }
}
