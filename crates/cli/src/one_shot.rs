//! A sandbox for one command of this process, without a daemon: the common part of `run` and `repl`. The
//! configuration is read here, so that it applies to them as it does to the daemon.

use anyhow::Result;

use super::context::Context;
use super::{image, output};
use access::audit::Audit;
use control::{
    RefusedHosts, egress_defaults, egress_recorder, egress_settings, operator_defaults, own_files,
    own_host_files, own_settings,
};
use host::secret::{self, Secrets};
use sandbox::{OneShot, OneShotOptions, Spec};
use settings::Settings;
use workspace::Workspaces;

/// Starts the sandbox, with its image pulled if necessary, and prints what is not enforced.
pub async fn begin(
    context: &Context,
    spec: &mut Spec,
    audit: &Audit,
    refused: &RefusedHosts,
) -> Result<OneShot> {
    let settings = own_settings()?;
    spec.pull = spec.pull.or(Some(settings.image_policy.pull));
    image::pull::if_wanted(&context.paths, spec).await?;
    let known = known(&settings, spec, audit, refused);
    let one_shot = sandbox::one_shot_with(&context.paths, spec, &known).await?;
    for warning in one_shot.warnings() {
        output::note(&output::printable(&warning));
    }
    Ok(one_shot)
}

/// The configuration for sandboxes.
fn known(
    settings: &Settings,
    spec: &Spec,
    audit: &Audit,
    refused: &RefusedHosts,
) -> OneShotOptions {
    let names_a_workspace = spec.workspace.as_deref().is_some_and(|name| !workspace::is_path(name));
    if !spec.secrets.is_empty() || names_a_workspace {
        secret::guard_process();
    }
    let secrets = Secrets::new(settings.secrets.clone());
    // The bridge's own files are configured there, too, and cannot be mounted.
    let workspaces = Workspaces::new(settings.workspaces.clone(), secrets.clone());
    OneShotOptions {
        egress: egress_settings(&settings.egress),
        defaults: operator_defaults(settings),
        egress_default: egress_defaults(settings),
        decisions: Some(refused.before(&egress_recorder(audit.clone(), spec.which()))),
        files: own_host_files(settings),
        secrets,
        workspaces: workspaces.apart_from(own_files(settings)),
    }
}

/// Copies the workspace back, ends the sandbox, and prints what was refused meanwhile and what was not copied
/// back.
pub async fn end(mut one_shot: OneShot, refused: &RefusedHosts) -> Result<()> {
    let synced = one_shot.sync().await;
    one_shot.end().await;
    for line in refused.lines() {
        output::note(&output::printable(&line));
    }
    for warning in synced?.warnings() {
        output::note(&output::printable(&warning));
    }
    Ok(())
}
