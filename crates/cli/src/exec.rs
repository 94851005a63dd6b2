//! `exec`: run a command in a running sandbox.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use protocol::SessionId;
use protocol::requests::{Signal, Start, Stdio, Target};

use super::command_line;
use super::context::Context;
use super::exit::Exit;
use super::group_limits::GroupLimitArguments;
use super::output;
use super::session::screen::{self, Keyboard, SessionExit};
use super::session::{self, LOG_HOLDER, ProcessArguments, pipes, program_name};
use agent_client::guest::Guest;
use control::Purpose;
use sandbox::SandboxRef;

/// Run a command in a running sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge exec work -- make test
  host-bridge exec -it work -- python3
  host-bridge exec -i work -- sh -c 'cat > /tmp/data' < data
  host-bridge exec -d --session build work -- make     prints the session's id
  host-bridge attach work --session build              attach to it later
  host-bridge exec --memory 256M --cpus 0.5 work -- make test     with limits of its own

Without -d the command ends when host-bridge ends, for whatever reason. With -it every key goes to the
program, so there is no key to detach: use `attach` for a session that keeps running. The exit codes are
those of `run`.")]
pub struct Exec {
    #[command(flatten)]
    process: ProcessArguments,

    #[command(flatten)]
    limits: GroupLimitArguments,

    /// Run in the background and print the session's id (-i keeps stdin open)
    #[arg(short, long)]
    detach: bool,

    /// Set the session's id (default: a generated id); a second start with the same id finds the first
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,

    #[command(flatten)]
    words: SandboxCommand,
}

/// A sandbox and a command for it.
#[derive(Clone, Debug, Args)]
pub struct SandboxCommand {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    pub which: SandboxRef,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

impl Exec {
    /// One that runs a command in the foreground.
    pub(super) fn attached(process: ProcessArguments, words: SandboxCommand) -> Self {
        let limits = GroupLimitArguments::default();
        Self { process, limits, detach: false, session: None, words }
    }

    pub async fn run(&self, context: &Context) -> Result<Exit> {
        command_line::check_command("exec", &self.words.command)?;
        if !self.detach {
            session::check_terminal(&self.process)?;
        }
        let session = self.session.clone().map_or_else(session::draw_id, Ok)?;
        let mut start = self.process.start(session.clone(), &self.words.command)?;
        start.limits = self.limits.limits();
        let mut words = self.words.command.iter().map(|word| word.to_string_lossy().into_owned());
        let (program, arguments) = (words.next(), words.collect());
        let purpose = Purpose { verb: "exec".to_owned(), program, arguments, ..Purpose::default() };
        let guest = context.guest_for(&self.words.which, purpose).await?;
        let exit = if self.detach {
            start.tied = false;
            start.holders = vec![LOG_HOLDER.to_owned()];
            pipes::tell_warnings(&guest.start(&start).await?);
            output::print_line(session.as_str())?;
            Ok(Exit::SUCCESS)
        } else {
            self.run_attached(&guest, start).await
        };
        guest.close().await;
        exit
    }

    async fn run_attached(&self, guest: &Guest, mut start: Start) -> Result<Exit> {
        let holder = session::own_holder(&start.session);
        // The first one is who reads here; the recorder reads for the disk.
        start.holders = vec![holder.clone(), LOG_HOLDER.to_owned()];
        let command = program_name(&self.words.command);
        if matches!(start.stdio, Stdio::Pipes { .. }) {
            return pipes::run(guest, &start, &holder, &command).await;
        }
        let session = start.session.clone();
        match guest.start(&start).await {
            Ok(started) => pipes::tell_warnings(&started),
            Err(error) => {
                let error = error.into();
                pipes::give_up(guest, &session, &holder, &error).await;
                return Err(error);
            }
        }
        let keyboard = if self.process.interactive { Keyboard::Take } else { Keyboard::Never };
        let seat = session::own_viewer(session.clone(), holder.clone(), keyboard);
        let exit = match screen::run(guest, seat).await? {
            SessionExit::Exited(record) => {
                pipes::tell_end(&record, &command);
                Exit::of(&record)
            }
            SessionExit::Signalled(signal) => {
                hang_up(guest, &session).await;
                Exit::signalled(signal)
            }
            SessionExit::Unread => {
                hang_up(guest, &session).await;
                Exit::UNREAD
            }
            SessionExit::Detached => Exit::SUCCESS,
        };
        pipes::release(guest, &session, &holder).await;
        Ok(exit)
    }
}

/// Sends SIGHUP, as a closed terminal does. The tied session then ends with the connection.
async fn hang_up(guest: &Guest, session: &SessionId) {
    let signal = nix::libc::SIGHUP;
    let _ = guest.signal(Signal { session: session.clone(), signal, target: Target::Tree }).await;
}
