//! A machine that somebody else runs: the bridge has only the address of its agent.
//!
//! It cannot be started or killed from here. Stopping such a sandbox only disconnects; the machine
//! continues, because its operator did not ask for its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{
    Adoption, BoxFuture, Directories, Machine, MachineError, MachineExit, MachineSpec, Running,
    SandboxId, Trace,
};
use crate::limits::ADOPT_DEADLINE;
use agent_client::guest::Guest;
use agent_client::link::{Address, LinkError};

/// Connects to machines that others run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExternalMachine;

impl Machine for ExternalMachine {
    fn start(&self, spec: MachineSpec) -> BoxFuture<'_, Result<Arc<dyn Running>, MachineError>> {
        Box::pin(async move {
            let address = spec.address.ok_or(MachineError::NoAddress)?;
            let connected = connect(address).await;
            let connection = connected
                .map_err(|source| MachineError::Link { source, console: String::new() })?;
            Ok(Arc::new(connection) as Arc<dyn Running>)
        })
    }

    fn adopt(&self, _: SandboxId, _: Directories, trace: Trace) -> BoxFuture<'_, Adoption> {
        Box::pin(async move {
            let Some(address) = trace.address else { return Adoption::Dead };
            match connect(address).await {
                Ok(connection) => Adoption::Alive(Arc::new(connection)),
                Err(_) => Adoption::Dead,
            }
        })
    }

    fn clean(&self, _: SandboxId, _: Option<Directories>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

async fn connect(address: Address) -> Result<Connection, LinkError> {
    let mut options = super::guest_options(None);
    options.connect_deadline = ADOPT_DEADLINE;
    let guest = Guest::connect(address.clone(), options).await?;
    let (let_go, _) = watch::channel(false);
    Ok(Connection { guest, address, let_go })
}

/// The link to somebody else's machine.
struct Connection {
    guest: Guest,
    address: Address,
    /// Becomes true when this bridge is done with the machine.
    let_go: watch::Sender<bool>,
}

impl Running for Connection {
    fn guest(&self) -> Option<Guest> {
        Some(self.guest.clone())
    }

    fn trace(&self) -> Trace {
        Trace { process: None, address: Some(self.address.clone()), paused: false }
    }

    fn stop(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async { self.kill() })
    }

    fn kill(&self) {
        self.let_go.send_replace(true);
    }

    fn was_killed(&self) -> bool {
        false
    }

    fn exited(&self) -> BoxFuture<'static, MachineExit> {
        let (lost, mut let_go) = (self.guest.lost(), self.let_go.subscribe());
        Box::pin(async move {
            tokio::select! {
                error = lost => MachineExit::Unreachable { reason: error.to_string() },
                Ok(_) = let_go.wait_for(|done| *done) => MachineExit::Gone,
            }
        })
    }
}
