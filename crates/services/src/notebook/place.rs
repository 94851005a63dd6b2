//! Where a notebook's interpreters live: in an existing sandbox, or in one of its own.

use serde::{Deserialize, Serialize};

use super::error::NotebookError;
use agent_client::guest::Guest;
use machine::SandboxId;
use sandbox::{Registry, SandboxError, SandboxRef, Spec};

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotebookSandbox {
    /// It must run: its creator decides about its life.
    Sandbox(SandboxRef),
    /// Made when it is needed, and again when it is gone; removed with the notebook.
    Own(Box<Spec>),
}

impl NotebookSandbox {
    /// A sandbox of its own: only with fields that may be stored unencrypted.
    pub fn own(spec: Spec) -> Result<Self, NotebookError> {
        // Values of the environment may be secrets, which are stored nowhere.
        if !spec.env.is_empty() {
            return Err(NotebookError::Place { what: "an environment" });
        }
        Ok(Self::Own(Box::new(spec)))
    }

    pub fn which(&self) -> SandboxRef {
        match self {
            Self::Sandbox(which) => which.clone(),
            Self::Own(spec) => spec.which(),
        }
    }

    /// The running sandbox.
    pub async fn enter(
        &self,
        registry: &Registry,
    ) -> Result<(SandboxRef, SandboxId, Guest), NotebookError> {
        let which = self.which();
        match (find(registry, &which).await, self) {
            (Ok((id, guest)), _) => Ok((which, id, guest)),
            (Err(error), Self::Sandbox(_)) => {
                Err(NotebookError::SandboxGone { which, why: error.to_string() })
            }
            (Err(SandboxError::NotFound { .. }), Self::Own(spec)) => {
                registry.create((**spec).clone()).await?;
                let (id, guest) = find(registry, &which).await?;
                Ok((which, id, guest))
            }
            (Err(SandboxError::NotRunning { .. } | SandboxError::Lost { .. }), Self::Own(spec)) => {
                registry.discard(&which).await?;
                registry.create((**spec).clone()).await?;
                let (id, guest) = find(registry, &which).await?;
                Ok((which, id, guest))
            }
            (Err(error), Self::Own(_)) => Err(error.into()),
        }
    }

    /// Removes a notebook's own sandbox.
    pub async fn leave(&self, registry: &Registry) -> Result<(), NotebookError> {
        let Self::Own(spec) = self else { return Ok(()) };
        match registry.discard(&spec.which()).await {
            Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn find(registry: &Registry, which: &SandboxRef) -> Result<(SandboxId, Guest), SandboxError> {
    let visit = registry.visit(which).await?;
    Ok((visit.id, visit.guest))
}
