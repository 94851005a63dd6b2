//! Packages for a new sandbox, on its image or over the host's root, which verbs install before it begins.

use anyhow::Result;
use tokio::sync::mpsc::channel;

use super::build::{EVENTS_WAITING_MAX, write};
use super::record::Recorder;
use crate::context::Context;
use control::{egress_settings, operator_defaults, own_host_files, own_settings};
use image::Images;
use sandbox::Spec;
use services::build::packages::{self, Installed, Packages};
use services::build::{BuildOptions, StepSandbox};

/// Puts the packages on the image of a specification.
pub async fn install(context: &Context, spec: &mut Spec, packages: &Packages) -> Result<()> {
    context.paths.prepare()?;
    let recorder = Recorder::open(context)?;
    let settings = own_settings()?;
    let images = Images::open(&context.paths)?;
    let (events, progress) = channel(EVENTS_WAITING_MAX);
    let paths = context.paths.clone();
    let step = StepSandbox::like(spec, &operator_defaults(&settings), own_host_files(&settings));
    let egress = egress_settings(&settings.egress);
    let decisions = recorder.egress(spec.which());
    let options = BuildOptions { paths, images, egress, decisions, step, events };
    let act = recorder.begin("build_image");
    let act = act.fact("pip", packages.pip.clone()).fact("npm", packages.npm.clone());
    let writing = tokio::spawn(write(progress, false));
    let built = packages::install(packages, spec.image.as_deref(), options).await;
    // The output precedes the result.
    let _ = writing.await;
    // The package managers' output was shown already.
    let built = built.map_err(anyhow::Error::from);
    match &built {
        Ok(Installed::Image(image)) => act.digest(&image.digest).done(),
        Ok(Installed::OverHost(_)) => act.done(),
        Err(error) => act.failed(error),
    }
    recorder.close().await;
    if let Some(packages) = built?.give(spec) {
        // This process may be all that knows the sandbox.
        packages.hold_until_exit();
    }
    Ok(())
}
