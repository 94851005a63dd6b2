//! `kill`: send a signal to sessions of a sandbox, or kill the sandbox.

use anyhow::Result;
use clap::Args;
use protocol::requests::{Signal, Target};
use protocol::{FaultCode, SessionId};

use super::context::Context;
use super::exit::Exit;
use super::session;
use super::values::parse_signal;
use agent_client::guest::{Guest, GuestError};
use control::Request;
use sandbox::{Record, SandboxRef};

const SIGKILL: i32 = nix::libc::SIGKILL;

/// Kill a sandbox, or signal its sessions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge kill work                    the whole sandbox
  host-bridge kill work build              one session and its child processes
  host-bridge kill -s HUP work build       a signal to a session's process group
  host-bridge kill -s INT work             a signal to every session's process group")]
pub struct Kill {
    /// Set the signal, by name or number (default: KILL)
    #[arg(short, long, value_name = "SIGNAL", value_parser = parse_signal)]
    signal: Option<i32>,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// The session: its id or a prefix of it (default: all)
    #[arg(value_name = "SESSION")]
    session: Option<String>,
}

impl Kill {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        if self.session.is_none() && self.signal.is_none() {
            let request = Request::Kill { sandbox: self.which.clone() };
            let killed = context.daemon().await?.ask::<Record>(&request).await;
            return match killed {
                Ok(_) => Ok(Exit::SUCCESS),
                Err(error) => Err(context.explain(&self.which, error).await),
            };
        }
        let guest = context.guest(&self.which, "kill").await?;
        let sent = self.send(&guest, context).await;
        guest.close().await;
        sent.map(|()| Exit::SUCCESS)
    }

    async fn send(&self, guest: &Guest, context: &Context) -> Result<()> {
        let sessions = guest.sessions(0).await?.sessions;
        if let Some(wanted) = &self.session {
            return match session::find(&sessions, wanted) {
                Ok(found) => Ok(self.send_to(guest, &found.session).await?),
                Err(unknown) => {
                    Err(session::why_not_there(&context.paths, &self.which, unknown).await.into())
                }
            };
        }
        for living in sessions.iter().filter(|session| session.exit.is_none()) {
            self.send_to(guest, &living.session).await?;
        }
        Ok(())
    }

    async fn send_to(&self, guest: &Guest, session: &SessionId) -> Result<(), GuestError> {
        signal_session(guest, session, self.signal.unwrap_or(SIGKILL)).await
    }
}

/// Sends a signal to a session.
async fn signal_session(guest: &Guest, session: &SessionId, signal: i32) -> Result<(), GuestError> {
    // A kill must not leave children behind; any other signal is for those that would get it
    // from a terminal.
    let target = if signal == SIGKILL { Target::Tree } else { Target::Group };
    let request = Signal { session: session.clone(), signal, target };
    match guest.signal(request).await {
        // It ended by itself in the meantime, as requested.
        Err(error) if error.fault_code() == Some(FaultCode::Gone) => Ok(()),
        sent => sent,
    }
}

/// Kills a session and all that it has started.
pub async fn kill_session(guest: &Guest, session: &SessionId) -> Result<(), GuestError> {
    signal_session(guest, session, SIGKILL).await
}
