//! `run`: run one command in a new sandbox and remove the sandbox afterwards. Needs no daemon.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use protocol::requests::Stdio;

use super::command_line;
use super::context::{Context, explain_gone};
use super::exit::Exit;
use super::failure::CliError;
use super::one_shot;
use super::output;
use super::sandbox_options::OwnedSandboxOptions;
use super::session::screen::{self, Keyboard, SessionExit};
use super::session::{self, ProcessArguments, pipes, program_name};
use access::audit::{Audit, Entry, Outcome};
use agent_client::guest::Guest;
use control::RefusedHosts;
use image::document::Process;
use sandbox::Spec;

/// Run one command in a new sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge run -- echo hello
  host-bridge run -it -- bash
  tar c src | host-bridge run -i --timeout 5m -- sh -c 'tar x && make -C src'
  host-bridge run --image ./rootfs --scratch 4G -e CI=1 -- cargo test
  host-bridge run --secret npm-token -- npm ci
  host-bridge run --workspace . -- sh -c 'cd /workspace && make'      changes are copied back
  host-bridge run --image team/app:2                   the image's own command
  host-bridge run --memory 256 --cpus 0.5 -- python3 -c 'print(2 ** 100)'

The sandbox is removed when the command ends. The exit code is the command's own; 124 after --timeout,
125 when host-bridge failed, 126 when the command cannot be executed, 127 when it was not found, and
128+n when signal n ended it.")]
pub struct Run {
    #[command(flatten)]
    sandbox: OwnedSandboxOptions,

    #[command(flatten)]
    process: ProcessArguments,

    #[command(flatten)]
    docker: command_line::DockerOptions,

    /// Refused with a hint what to write instead.
    #[arg(short, long, hide = true)]
    detach: bool,

    /// The sandbox is always removed.
    #[arg(long, hide = true)]
    rm: bool,

    /// The command and its arguments (default: the image's command)
    #[arg(
        required_unless_present = "image",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

impl Run {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        command_line::check_command("run", &self.command)?;
        command_line::check_run(self.detach)?;
        self.docker.check()?;
        let mut spec = self.sandbox.spec()?;
        session::check_terminal(&self.process)?;
        // Before anything is done: unrecorded operations may have to be refused.
        let audit = context.audit()?;
        let mut entry = self.entry(&spec, audit.arguments());
        let began = Instant::now();
        let result = match self.sandbox.install_packages(context, &mut spec).await {
            Ok(()) => self.run_once(context, &mut spec, &audit, &mut entry).await,
            Err(error) => Err(error),
        };
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

    async fn run_once(
        &self,
        context: &Context,
        spec: &mut Spec,
        audit: &Audit,
        entry: &mut Entry,
    ) -> Result<Exit> {
        let refused = RefusedHosts::default();
        let one_shot = one_shot::begin(context, spec, audit, &refused).await?;
        entry.digest = one_shot.image_digest();
        let result = self.run_in(one_shot.guest(), one_shot.process()).await;
        let result = match result {
            Err(error) => Err(explain_gone(&one_shot, error).await),
            ended => ended,
        };
        let ended = one_shot::end(one_shot, &refused).await;
        let exit = result?;
        ended?;
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
