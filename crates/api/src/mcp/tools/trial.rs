//! A fork in which a command is tried. The result lists what has changed, and the fork is dropped or kept.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::call::Inside;
use crate::mcp::limits::CHANGES_SHOWN_MAX;
use crate::mcp::tool::Work;
use sandbox::changes::FileChange;
use sandbox::refusal::{Code, Refusal};
use sandbox::{ForkRequest, Registry, SandboxRef};

/// What happens to the fork afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Drop,
    Keep,
}

/// A fork. It is removed when this is dropped, unless [`Trial::end`] has kept it.
pub struct Trial {
    registry: Registry,
    fork: Option<SandboxRef>,
    ending: Ending,
}

/// What a tried command has changed.
#[derive(Debug, Default)]
pub struct TrialResult {
    /// The fork, if it was kept.
    pub fork: Option<String>,
    pub changes: Vec<FileChange>,
    /// How many more there are.
    pub more: u64,
}

impl Trial {
    /// Forks a sandbox, and enters the fork.
    pub async fn begin(
        work: &Work,
        which: &SandboxRef,
        ending: Ending,
    ) -> Result<(Self, Inside), Refusal> {
        let registry = work.api.registry().clone();
        let request = ForkRequest {
            count: 1,
            key: work.caller.key(),
            keeps_index: true,
            is_operator: work.is_operator,
            ..ForkRequest::default()
        };
        let forked = registry.fork(which, request).await?;
        let fork = forked.forks.first().map(sandbox::Record::which);
        let fork = fork.ok_or_else(|| Refusal::new(Code::Internal, "no fork was made"))?;
        let trial = Self { registry, fork: Some(fork.clone()), ending };
        let inside = work.inside(fork).await?;
        Ok((trial, inside))
    }

    /// Lists what has changed, and drops the fork or keeps it.
    pub async fn end(mut self) -> Result<TrialResult, Refusal> {
        let Some(fork) = self.fork.clone() else { return Ok(TrialResult::default()) };
        let sandbox::Changes { mut changes, more } = self.registry.changes(&fork).await?;
        let left = changes.len().saturating_sub(CHANGES_SHOWN_MAX) as u64;
        changes.truncate(CHANGES_SHOWN_MAX);
        let result = TrialResult { fork: None, changes, more: more + left };
        self.fork = None;
        if self.ending == Ending::Keep {
            return Ok(TrialResult { fork: Some(fork.to_string()), ..result });
        }
        self.registry.discard(&fork).await?;
        Ok(result)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let Some(fork) = self.fork.take() else { return };
        let registry = self.registry.clone();
        // Without a runtime there are no sandboxes either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { registry.discard(&fork).await });
        }
    }
}

impl TrialResult {
    /// The lines about it for a model.
    pub fn words(&self) -> String {
        let mut lines: Vec<String> = Vec::with_capacity(self.changes.len() + 2);
        let ending = self.fork.as_ref().map_or_else(
            || "tried in a fork, which is removed".to_owned(),
            |fork| format!("tried in the fork {fork}, which is kept"),
        );
        let count = self.changes.len() as u64 + self.more;
        lines.push(format!("{ending}; {count} files and directories differ"));
        lines
            .extend(self.changes.iter().map(|one| format!("{} {}", one.change.letter(), one.path)));
        if self.more > 0 {
            lines.push(format!("and {} more", self.more));
        }
        lines.join("\n")
    }
}
