//! QEMU: a virtual machine on every host, fast where the host's hypervisor works and slow, but
//! right, where it does not.
//!
//! The accelerator is found by running a guest on it (`probe`), never by looking for a device file. The vsock
//! is QEMU's vhost-user device with `vhost-device-vsock`, which needs no rights and no special kernel on the
//! host.

mod arguments;
mod board;
mod halt;
mod probe;
mod qmp;
pub mod share;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use board::Board;
pub use probe::{Accelerator, Probe, probe};

use super::kind::Program;
use super::vmm::{self, Halt, Monitor, Plan, Programs, find_program};
use super::{BoxFuture, MachineError, MachineKind};

/// The program that is the machine.
pub const PROGRAM: Program = Program {
    label: "qemu",
    name: "qemu-system-x86_64",
    remedy: "`apt-get install --no-install-recommends qemu-system-x86`, or your distribution's \
             package of it",
};

/// The program between the guest's vsock and the bridge's socket.
pub const RELAY: Program = Program {
    label: "relay",
    name: vmm::RELAY,
    remedy: "`cargo install vhost-device-vsock --version 0.3.0 --locked`; the qemu machine needs it",
};

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Qemu {
    /// The accelerator; found out if absent.
    pub accelerator: Option<Accelerator>,
    /// How the agent is reached.
    pub transport: Transport,
    /// The board; the environment's choice if absent.
    pub board: Option<Board>,
}

/// How the agent in the guest is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// The relay if its program is installed, else a serial port.
    #[default]
    Auto,
    /// A vsock, and the relay between it and our socket.
    Relay,
    /// A virtio-serial port, which serves one client at a time.
    Serial,
}

impl Monitor for Qemu {
    fn kind(&self) -> MachineKind {
        MachineKind::Qemu
    }

    fn programs(&self, plan: &Plan) -> Result<Programs, MachineError> {
        let program = PROGRAM.find()?;
        let relay = self.relay()?;
        let accelerator = match self.accelerator {
            Some(accelerator) => accelerator,
            None => probe::known(&program, plan),
        };
        let board = self.board.map_or_else(Board::asked_for, Ok)?;
        let sharer = plan.bind.as_ref().map(|bind| share::beside(bind, plan)).transpose()?;
        arguments::programs(program, relay, sharer, accelerator, board, plan)
    }

    fn begin<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async { Ok(()) })
    }

    fn halt(&self) -> Option<&dyn Halt> {
        Some(self)
    }

    fn follow(&self, monitor: PathBuf) -> Option<BoxFuture<'static, Option<String>>> {
        Some(Box::pin(async move { qmp::last_word(&monitor).await }))
    }
}

impl Qemu {
    /// The program between the guest's vsock and us; `None` if it is not used.
    fn relay(&self) -> Result<Option<PathBuf>, MachineError> {
        let found = match self.transport {
            Transport::Serial => None,
            Transport::Auto | Transport::Relay => find_program(RELAY.name),
        };
        if found.is_none() && self.transport == Transport::Relay {
            return Err(RELAY.missing());
        }
        Ok(found)
    }
}
