//! The workspace of a sandbox, as far as it is known before anything is started, and the mount itself if it
//! is no copy. Owners and one-shots call this.

use std::io;
use std::path::Path;

use super::spec::unsupported::check_mount;
use super::{SandboxError, Spec};
use machine::{Bind, MachineKind, Running};
use workspace::{Mirror, WORKSPACE, Workspace, WorkspaceError, Workspaces, clear};

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
        check_mount(spec)?;
        workspace.check_apart(name, own.iter().copied().chain(workspaces.own()))?;
    }
    Mirror::check(name, &workspace)?;
    if let Some(bind) = at_boot(spec, Some(&workspace)) {
        bind.check().map_err(|error| WorkspaceError::Mount(io::Error::other(error)))?;
    }
    Ok(Some(workspace))
}

fn bind(workspace: &Workspace) -> Bind {
    Bind {
        directory: workspace.path.clone(),
        target: WORKSPACE.to_owned(),
        read_only: workspace.policy.read_only,
        write: workspace.policy.write.clone(),
    }
}

/// What a machine must be started with to mount the workspace.
pub(super) fn at_boot(spec: &Spec, workspace: Option<&Workspace>) -> Option<Bind> {
    let mounted = workspace.filter(|workspace| workspace.policy.mount);
    mounted.filter(|_| spec.machine().mounts_at_boot()).map(bind)
}

/// Mounts it in a machine that runs nothing yet, or checks that the machine did.
pub(super) async fn mount(
    machine: MachineKind,
    running: &dyn Running,
    workspace: &Workspace,
) -> Result<(), WorkspaceError> {
    let guest = running.guest().ok_or(WorkspaceError::Ended)?;
    if machine.mounts_at_boot() {
        // An agent that is older than its bridge would have ignored it silently.
        let steps = guest.info().boot;
        let is_done = steps.iter().any(|step| step.name == STEP && step.problem.is_none());
        return if is_done { Ok(()) } else { Err(WorkspaceError::OldAgent) };
    }
    clear(&guest).await?;
    running.bind(&bind(workspace)).await.map_err(WorkspaceError::Mount)
}

/// The agent's name for the boot step that mounts it.
const STEP: &str = "workspace";
