//! A command of a recipe: run in a sandbox of its own, whose files are the layer when it ends well.

use std::sync::Arc;

use protocol::SessionId;
use protocol::Text;
use protocol::exit::Cause;
use protocol::requests::{GroupLimits, Program as Argv, Release, SpoolSpec, Start, Stdio};
use serde_json::Value;

use super::stage::block;
use super::{Means, StepError, Told};
use agent_client::guest::exec::{Event, Execution};
use agent_client::guest::{Guest, GuestError};
use host::id::RandomId;
use image::digest::Digest;
use image::store::Lease;
use sandbox::{Known, Name, OneShot, SandboxError, SandboxRef, Spec, one_shot_with};

/// What the sandbox is called, for what asks for its host's name.
const NAME: &str = "build";
/// Who a command runs as that is not told.
const ROOT: &str = "0";

pub(super) struct Program {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: String,
    pub user: Option<String>,
    pub egress: Vec<String>,
}

/// Runs a command on an image, and takes up what has become of that.
pub(super) async fn run(
    means: &Means,
    base: Arc<Lease>,
    program: Program,
    document: Value,
    text: String,
    key: Digest,
) -> Result<Lease, StepError> {
    let name = NAME.parse().expect("it is a name");
    let mut spec = Spec::new(SandboxRef { namespace: Name::default_namespace(), name });
    spec.image = Some(base.image.digest.to_string());
    spec.env.clone_from(&program.env);
    spec.egress = Some(program.egress.clone());
    let known = Known { egress: means.egress.clone(), ..Known::default() };
    let sandbox = one_shot_with(&means.paths, &spec, &known).await?;
    for warning in sandbox.warnings() {
        let _ = means.tell.send(Told::Warning(warning)).await;
    }
    let done = match execute(sandbox.guest(), means, &program).await {
        Ok(()) => take_up(&sandbox, means, base, document, text, key).await,
        Err(error) => Err(error),
    };
    sandbox.end().await;
    done
}

async fn execute(guest: &Guest, means: &Means, program: &Program) -> Result<(), StepError> {
    let drawn = RandomId::draw().map_err(SandboxError::Draw)?;
    let session: SessionId = drawn.to_string().parse().expect("a drawn id is a session's too");
    let start = Start {
        session: session.clone(),
        program: Argv::Argv {
            argv: program.argv.iter().map(|word| Text::from(word.as_str())).collect(),
        },
        cwd: Some(Text::from(program.cwd.as_str())),
        env: Vec::new(),
        user: Some(program.user.clone().unwrap_or_else(|| ROOT.to_owned())),
        stdio: Stdio::Pipes { stdin: false },
        deadline_ms: None,
        spool: SpoolSpec::default(),
        holders: vec![NAME.to_owned()],
        tied: true,
        limits: GroupLimits::default(),
    };
    let mut execution = Execution::begin(guest, &start)?;
    let cannot = |error: GuestError| match &error {
        GuestError::Fault(fault) if fault.spawn.is_some() => {
            let program = program.argv.first().cloned().unwrap_or_default();
            StepError::Program { program, why: error.to_string() }
        }
        _ => error.into(),
    };
    while let Some(event) = execution.next().await.map_err(cannot)? {
        match event {
            Event::Started(started) => {
                for warning in started.warnings {
                    let _ = means.tell.send(Told::Warning(warning)).await;
                }
            }
            Event::Output { bytes, .. } => drop(means.tell.send(Told::Output(bytes)).await),
            Event::Gap { .. } => {
                return Err(GuestError::Malformed { what: "a gap in the output of a build" }.into());
            }
            Event::Exited(record) => {
                // What it has left behind would go on changing files.
                let release = Release { session, holder: None, kill_survivors: true };
                guest.release(release).await?;
                return match record.cause {
                    Cause::Exited { code: 0 } => Ok(()),
                    cause => Err(StepError::Exit { code: cause.shell_code() }),
                };
            }
        }
    }
    Err(GuestError::Malformed { what: "the end of a session without its record" }.into())
}

async fn take_up(
    sandbox: &OneShot,
    means: &Means,
    base: Arc<Lease>,
    document: Value,
    text: String,
    key: Digest,
) -> Result<Lease, StepError> {
    let (images, source) = (means.images.clone(), text.clone());
    let taking = sandbox.files(move |archive| {
        let bench = images.workbench()?;
        let file = images.difference(&bench, &base, archive, &source)?;
        Ok::<_, StepError>((bench, file, base))
    });
    let (bench, file, base) = taking.await??;
    let images = means.images.clone();
    block(move || {
        let lease = images.put_on(&bench, Some(&base.image), Some(&file), document, &[], &text)?;
        images.step_is(&key, &lease.image)?;
        Ok(lease)
    })
    .await
}
