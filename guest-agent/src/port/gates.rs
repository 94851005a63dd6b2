//! Where programs of the sandbox reach the host: sockets at addresses that stand for it.
//!
//! ```text
//!  asked for ──▶ open, with a turn ──something arrives──▶ taken, and open for the next request
//!                  │   └── asked for again: the earlier turn is over
//!                  └── nobody asks any more ──▶ closed
//! ```
//!
//! No policy is decided here: neither which names exist nor who may reach what. Connections in the
//! kernel's queue wait for the next turn.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use protocol::requests::Arrival;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

use crate::sys::{net, ready};

/// All open gates.
#[derive(Default)]
pub struct Gates(RefCell<Vec<Rc<Gate>>>);

struct Gate {
    at: SocketAddr,
    arrival: Arrival,
    socket: AsyncFd<OwnedFd>,
    /// Which turn gets the next connection: the latest.
    turn: Cell<usize>,
}

/// The right to the next arrival at a gate, until another request takes it over.
pub struct Turn<'a> {
    gates: &'a Gates,
    gate: Rc<Gate>,
    number: usize,
}

impl Drop for Turn<'_> {
    /// Closes a gate whose turn is dropped, unless somebody else has asked meanwhile.
    fn drop(&mut self) {
        if self.holds() {
            self.gates.0.borrow_mut().retain(|gate| !Rc::ptr_eq(gate, &self.gate));
        }
    }
}

impl Gates {
    /// A turn at an address, where a gate is opened if there is none.
    pub fn turn(&self, at: SocketAddr, arrival: Arrival) -> io::Result<Turn<'_>> {
        let mut open = self.0.borrow_mut();
        let known = open.iter().find(|gate| gate.at == at && gate.arrival == arrival);
        let gate = if let Some(gate) = known {
            gate.clone()
        } else {
            let socket = net::listen(at, arrival == Arrival::Question)?;
            let socket = ready::watch(socket, Interest::READABLE)?;
            let gate = Rc::new(Gate { at, arrival, socket, turn: Cell::default() });
            open.push(gate.clone());
            gate
        };
        let number = gate.turn.get() + 1;
        gate.turn.set(number);
        Ok(Turn { gates: self, gate, number })
    }
}

impl Turn<'_> {
    fn holds(&self) -> bool {
        self.gate.turn.get() == self.number
    }

    /// The next connection. Questions are answered for as long as this is waited for.
    pub async fn next(mut self) -> io::Result<TcpStream> {
        loop {
            let mut ready = self.gate.socket.readable().await?;
            if !self.holds() {
                return Err(io::Error::from_raw_os_error(libc::ECANCELED));
            }
            let taken = match self.gate.arrival {
                Arrival::Connection => net::accept(&self.gate.socket).map(Some),
                Arrival::Question => net::turn_away(&self.gate.socket).map(|()| None),
            };
            match taken {
                Ok(None) => {}
                Err(error) if is_for_later(&error) => ready.clear_ready(),
                Ok(Some(socket)) => {
                    // The gate stays open for the next request.
                    self.number = 0;
                    return TcpStream::from_std(socket.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the kernel has nothing at the moment, which is no failure.
pub(super) fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
