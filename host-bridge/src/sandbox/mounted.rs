//! What a sandbox gets at `/workspace`, as far as that can be said before anything is started, and the
//! directory itself where it is to be no copy. Owners and one-shots call this.

use std::path::Path;

use super::spec::unsupported::check_mount;
use super::{SandboxError, Spec};
use crate::machine::{Bind, Running};
use crate::workspace::{Mirror, WORKSPACE, Workspace, WorkspaceError, Workspaces, clear};

/// The workspace of this specification. `own` are directories of the bridge.
pub(super) fn find(
    spec: &Spec,
    workspaces: &Workspaces,
    own: &[&Path],
) -> Result<Option<Workspace>, SandboxError> {
    let Some(name) = &spec.workspace else { return Ok(None) };
    let mut workspace = workspaces.find(spec.namespace.as_str(), name)?;
    workspace.policy.mount |= spec.mount;
    if workspace.policy.mount {
        check_mount(spec.machine)?;
        workspace.check_apart(name, own)?;
    }
    Mirror::check(name, &workspace)?;
    Ok(Some(workspace))
}

/// Mounts it in a machine that nothing runs in yet.
pub(super) async fn mount(
    running: &dyn Running,
    workspace: &Workspace,
) -> Result<(), WorkspaceError> {
    let guest = running.guest().ok_or(WorkspaceError::Ended)?;
    clear(&guest).await?;
    let bind = Bind {
        directory: workspace.path.clone(),
        target: WORKSPACE.to_owned(),
        read_only: workspace.policy.read_only,
        write: workspace.policy.write.clone(),
    };
    running.bind(&bind).await.map_err(WorkspaceError::Mount)
}
