//! Runs a command of a recipe in its own sandbox, whose files become the layer if it succeeds.

use std::sync::Arc;

use protocol::requests::{self, Release};
use serde_json::Value;

use super::blocking::block;
use super::{BuildEvent, BuildOptions, StepError, StepSandbox};
use agent_client::guest::{Guest, GuestError};
use agent_client::program::{Event, OnDrop, Program, draw_session};
use egress::RefusedHosts;
use image::digest::Digest;
use image::store::Lease;
use sandbox::{HostFiles, OneShot, OneShotOptions, Spec, one_shot_with};

/// The sandbox's host name.
pub(super) const NAME: &str = "build";
/// The user of a command without one.
const ROOT: &str = "0";

/// A step's command, its user, and what it may reach.
pub(super) struct Command {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: String,
    pub user: Option<String>,
    pub egress: Vec<String>,
}

/// Runs a command on an image, and saves the result.
pub(super) async fn run(
    options: &BuildOptions,
    base: Arc<Lease>,
    program: Command,
    document: Value,
    text: String,
    key: Digest,
) -> Result<Lease, StepError> {
    let StepSandbox { machine, memory_mib, cpu_millis, files } = options.step.clone();
    if !machine.is_started() {
        return Err(StepError::NotStarted { machine });
    }
    let mut spec = Spec::new(super::which());
    spec.image = Some(base.image.digest.to_string());
    spec.env.clone_from(&program.env);
    spec.egress = Some(program.egress.clone());
    (spec.machine, spec.memory_mib, spec.cpu_millis) = (Some(machine), memory_mib, cpu_millis);
    let (sandbox, refused) = begin(options, &spec, files).await?;
    for warning in sandbox.warnings() {
        options.report(BuildEvent::Warning(warning)).await;
    }
    let done = match execute(sandbox.guest(), options, &program).await {
        Ok(()) => take_up(&sandbox, options, base, document, text, key).await,
        Err(error) => Err(error),
    };
    end(sandbox, &refused, options).await;
    done
}

/// Starts a sandbox for a step. What it is refused to reach is reported at its end.
pub(super) async fn begin(
    options: &BuildOptions,
    spec: &Spec,
    files: HostFiles,
) -> Result<(OneShot, RefusedHosts), StepError> {
    let refused = RefusedHosts::default();
    let known = OneShotOptions {
        egress: options.egress.clone(),
        decisions: Some(refused.before(&options.decisions)),
        files,
        ..OneShotOptions::default()
    };
    Ok((one_shot_with(&options.paths, spec, &known).await?, refused))
}

pub(super) async fn end(sandbox: OneShot, refused: &RefusedHosts, options: &BuildOptions) {
    sandbox.end().await;
    for line in refused.lines() {
        options.report(BuildEvent::Warning(line)).await;
    }
}

pub(super) async fn execute(
    guest: &Guest,
    options: &BuildOptions,
    program: &Command,
) -> Result<(), StepError> {
    let mut command = Program::new(
        draw_session()?,
        requests::Program::argv(program.argv.iter().map(String::as_str)),
    );
    command.start.cwd = Some(program.cwd.as_str().into());
    command.start.user = Some(program.user.clone().unwrap_or_else(|| ROOT.to_owned()));
    command.start.holders = vec![NAME.to_owned()];
    // The sandbox ends with the step, and the program with it.
    command.on_drop = OnDrop::Leave;
    let mut running = command.begin(guest)?;
    let cannot = |error: GuestError| match &error {
        GuestError::Fault(fault) if fault.spawn.is_some() => {
            let program = program.argv.first().cloned().unwrap_or_default();
            StepError::Program { program, why: error.to_string() }
        }
        _ => error.into(),
    };
    while let Some(event) = running.next().await.map_err(cannot)? {
        match event {
            Event::Started(started) => {
                for warning in started.warnings {
                    options.report(BuildEvent::Warning(warning)).await;
                }
            }
            Event::Output { bytes, .. } => options.report(BuildEvent::Output(bytes)).await,
            Event::Gap { .. } => {
                return Err(GuestError::Malformed { what: "a gap in the output of a build" }.into());
            }
            Event::Ended(ended) => {
                // Processes that it left behind would continue to change files.
                let session = running.session().clone();
                let release = Release { session, holder: None, kill_survivors: true };
                guest.release(release).await?;
                return match ended.shell_code() {
                    _ if ended.is_success() => Ok(()),
                    code => Err(StepError::Exit { code }),
                };
            }
        }
    }
    Err(GuestError::Malformed { what: "the end of a session without its record" }.into())
}

async fn take_up(
    sandbox: &OneShot,
    options: &BuildOptions,
    base: Arc<Lease>,
    document: Value,
    text: String,
    key: Digest,
) -> Result<Lease, StepError> {
    let (images, source) = (options.images.clone(), text.clone());
    let taking = sandbox.files(move |archive| {
        let bench = images.workbench()?;
        let file = images.difference(&bench, &base, archive, &source)?;
        Ok::<_, StepError>((bench, file, base))
    });
    let (bench, file, base) = taking.await??;
    let images = options.images.clone();
    block(move || {
        let lease = images.put_on(&bench, Some(&base.image), Some(&file), document, &[], &text)?;
        images.step_is(&key, &lease.image)?;
        Ok(lease)
    })
    .await
}
