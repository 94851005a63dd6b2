//! `run`: run one command in a new sandbox and remove the sandbox afterwards. Needs no daemon.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use protocol::Text;
use protocol::requests::Stdio;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::output;
use super::session::screen::{self, Keyboard, SessionExit};
use super::session::{self, ProcessArguments, pipes, program_name};
use super::start::SandboxArguments;
use access::audit::{Entry, Outcome};
use agent_client::guest::Guest;
use control::{egress_settings, own_files};
use host::secret::{self, Secrets};
use image::document::Process;
use sandbox::{OneShot, OneShotOptions, Spec};
use settings::{Overrides, Settings};
use workspace::Workspaces;

/// Run one command in a new sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge run -- echo hello
  host-bridge run -it -- bash
  tar c src | host-bridge run -i --timeout 5m -- sh -c 'tar x && make'
  host-bridge run --image ./rootfs --scratch 4G -e CI=1 -- cargo test
  host-bridge run --secret npm-token -- npm ci
  host-bridge run --workspace . -- sh -c 'cd /workspace && make'      changes are copied back
  host-bridge run --image team/app:2                   the image's own command
  host-bridge run --memory 256 --cpus 0.5 -- python3 hungry.py

The sandbox is removed when the command ends. The exit code is the command's own; 124 after --timeout,
125 when host-bridge failed, 126 when the command cannot be executed, 127 when it was not found, and
128+n when signal n ended it.")]
pub struct Run {
    #[command(flatten)]
    sandbox: SandboxArguments,

    #[command(flatten)]
    process: ProcessArguments,

    /// The command and its arguments (default: the image's command)
    #[arg(
        required_unless_present = "image",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// A sandbox with the secrets, the workspaces and the bounds of what may be reached that there are, if any
/// of those is asked for: no daemon is needed, so the configuration is read here.
async fn begin(context: &Context, spec: &Spec) -> Result<OneShot> {
    let names_a_workspace = spec.workspace.as_deref().is_some_and(|name| !workspace::is_path(name));
    // What is the bridge's own is said there too, and is nothing that is mounted.
    let is_set =
        !spec.secrets.is_empty() || spec.egress.is_some() || names_a_workspace || spec.mount;
    let settings =
        if is_set { Settings::load(None, &Overrides::default())? } else { Settings::default() };
    if !spec.secrets.is_empty() || names_a_workspace {
        secret::guard_process();
    }
    let own = own_files(&settings);
    let secrets = Secrets::new(settings.secrets);
    let known = OneShotOptions {
        egress: egress_settings(&settings.egress),
        secrets: secrets.clone(),
        workspaces: Workspaces::new(settings.workspaces, secrets).apart_from(own),
    };
    Ok(sandbox::one_shot_with(&context.paths, spec, &known).await?)
}

impl Run {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let spec = self.sandbox.spec()?;
        session::check_terminal(&self.process)?;
        // Before anything is done: it may be that nothing is to be done that is not recorded.
        let audit = context.audit()?;
        let mut entry = self.entry(&spec, audit.arguments());
        let began = Instant::now();
        let result = self.run_once(context, &spec, &mut entry).await;
        entry.duration_us = u64::try_from(began.elapsed().as_micros()).ok();
        match &result {
            Ok(exit) => entry = entry.fact("exit_code", exit.0),
            Err(error) => {
                entry.outcome = Outcome::Failed;
                entry = entry.fact("why", error.to_string());
            }
        }
        audit.record(entry);
        audit.close().await;
        result
    }

    /// The audit entry of the command.
    fn entry(&self, spec: &Spec, with_arguments: bool) -> Entry {
        let mut words = self.command.iter().map(|word| word.to_string_lossy().into_owned());
        let mut entry = control::entry("run");
        entry.image.clone_from(&spec.image);
        entry.secrets.clone_from(&spec.secrets);
        entry.labels.clone_from(&spec.labels);
        entry.program = words.next();
        entry.arguments = words.filter(|_| with_arguments).collect();
        entry
    }

    async fn run_once(&self, context: &Context, spec: &Spec, entry: &mut Entry) -> Result<Exit> {
        super::image::pull::if_wanted(&context.paths, spec).await?;
        let mut one_shot = begin(context, spec).await?;
        entry.digest = one_shot.image_digest();
        for warning in one_shot.warnings() {
            output::note(&output::printable(&warning));
        }
        let result = self.run_in(one_shot.guest(), one_shot.process()).await;
        let synced = one_shot.sync().await;
        one_shot.end().await;
        let exit = result?;
        for warning in synced?.warnings() {
            output::note(&output::printable(&warning));
        }
        Ok(exit)
    }

    async fn run_in(&self, guest: &Guest, image: Option<&Process>) -> Result<Exit> {
        let session = session::draw_id()?;
        let holder = session::own_holder(&session);
        let usual = image.map(Process::command).unwrap_or_default();
        let argv = match self.command.as_slice() {
            [] if usual.is_empty() => return Err(CliError::NoCommand.into()),
            [] => usual.into_iter().map(OsString::from).collect(),
            own => own.to_vec(),
        };
        let mut start = self.process.start(session.clone(), &argv)?;
        if let Some(image) = image {
            // What the person says comes before what the image does.
            start.cwd = start.cwd.or_else(|| image.workdir.as_deref().map(Text::from));
        }
        start.holders = vec![holder.clone()];
        let command = program_name(&argv);
        if matches!(start.stdio, Stdio::Pipes { .. }) {
            return pipes::run(guest, &start, &holder, &command).await;
        }
        guest.start(&start).await?;
        let keyboard = if self.process.interactive { Keyboard::Take } else { Keyboard::Never };
        match screen::run(guest, session::own_viewer(session, holder, keyboard)).await? {
            SessionExit::Exited(record) => {
                pipes::tell_end(&record, &command);
                Ok(Exit::of(&record))
            }
            SessionExit::Signalled(signal) => {
                output::note("the sandbox is removed");
                Ok(Exit::signalled(signal))
            }
            SessionExit::Unread => Ok(Exit::UNREAD),
            SessionExit::Detached => Ok(Exit::SUCCESS),
        }
    }
}
