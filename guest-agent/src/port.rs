//! TCP connections to ports inside the sandbox, each carried by one two-way stream.
//!
//! `router` calls it. It never resolves names: the client knows the address. Connections in the other
//! direction, from programs to addresses that stand for the host, are in [`gates`].
//!
//! ```text
//!             ┌── Fin ─────► shut down for writing ──┐
//!  connected ─┤                                      ├─► both: closed
//!             └── EOF ─────► stream closed ──────────┘
//!  connected ──── either end fails ──► the other is reset
//! ```
//!
//! A connection that breaks is never passed on as a clean end: a server would otherwise take half of
//! an upload for all of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use protocol::message::Reply;
use protocol::requests::Forward;
use protocol::{Fault, FaultCode};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::flow::{Inlet, Outlet};
use crate::task;

mod gates;
#[cfg(test)]
mod tests;

pub use gates::Gates;
use gates::is_for_later;

/// The deadline for a connection. Within a sandbox it is made at once or, when the listener's queue is
/// full, after the kernel's first retries.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long a client may take to read the last bytes of a server that is gone, before the stream is reset.
const LINGER: Duration = Duration::from_secs(10);

/// Answers once the connection is made or has arrived, then carries bytes until both directions have
/// ended.
pub async fn forward(
    gates: Rc<Gates>,
    ask: Forward,
    inlet: Inlet,
    outlet: Outlet,
) -> Result<Reply, Fault> {
    let address = address(&ask)?;
    let connecting = async {
        match ask.accept {
            Some(arrival) => gates.turn(address, arrival)?.next().await,
            None => match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
                Ok(connected) => connected,
                Err(_) => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            },
        }
    };
    let connection = tokio::select! {
        connected = connecting => {
            connected.map_err(|error| refused(&format!("cannot connect to {address}"), &error))?
        }
        () = inlet.failed() => return Err(Fault::new(FaultCode::Gone, "the stream was closed")),
    };
    // A write must not wait for the acknowledgement of the previous one. If this fails the connection is
    // gone, which the next call shows.
    connection.set_nodelay(true).ok();
    task::spawn(async move {
        let carried = tokio::select! {
            biased;
            carried = carry(&connection, &inlet, &outlet) => carried,
            () = inlet.failed() => Err(CarryError::Client),
        };
        if let Err(broken) = carried {
            // Makes the close a reset. If it cannot be, the connection is gone already.
            connection.set_zero_linger().ok();
            if let CarryError::Connection(error) = broken {
                // An answer to half of an upload comes right before the reset of a server that read no more.
                timeout(LINGER, outlet.sent()).await.ok();
                outlet.fail(&refused(&format!("the connection to {address} broke off"), &error));
            }
        }
    });
    Ok(Reply::Done {})
}

/// Why a connection ended before both sides had finished.
enum CarryError {
    /// The client has reset the stream.
    Client,
    Connection(io::Error),
}

/// Carries both directions to their ends.
async fn carry(connection: &TcpStream, inlet: &Inlet, outlet: &Outlet) -> Result<(), CarryError> {
    let mut upload = pin!(upload(connection, inlet));
    let mut download = pin!(download(connection, outlet));
    tokio::select! {
        uploaded = &mut upload => {
            uploaded?;
            download.await
        }
        downloaded = &mut download => {
            downloaded?;
            // A server that has finished sending may still receive.
            upload.await
        }
    }
}

/// Ends when the client has finished and the server has seen the end.
async fn upload(connection: &TcpStream, inlet: &Inlet) -> Result<(), CarryError> {
    let mut taken = 0;
    while let Some(bytes) = next(inlet).await? {
        if let Err(error) = write_all(connection, &bytes).await {
            // The server is gone, but its last bytes may still be on their way to the client: the
            // stream is not reset before the client has had time to read them and end it.
            let rest = drop_rest(inlet, taken + bytes.len() as u64);
            return timeout(LINGER, rest).await.unwrap_or(Err(CarryError::Connection(error)));
        }
        taken += bytes.len() as u64;
        inlet.consumed(taken);
    }
    // A connection that is gone needs no shutdown.
    shutdown(connection.as_raw_fd(), Shutdown::Write).ok();
    Ok(())
}

async fn drop_rest(inlet: &Inlet, mut taken: u64) -> Result<(), CarryError> {
    inlet.consumed(taken);
    while let Some(bytes) = next(inlet).await? {
        taken += bytes.len() as u64;
        inlet.consumed(taken);
    }
    Ok(())
}

async fn next(inlet: &Inlet) -> Result<Option<Vec<u8>>, CarryError> {
    inlet.next().await.map_err(|_| CarryError::Client)
}

async fn write_all(connection: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.writable().await?;
        match connection.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_for_later(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn download(connection: &TcpStream, outlet: &Outlet) -> Result<(), CarryError> {
    loop {
        outlet.room().await.map_err(|_| CarryError::Client)?;
        connection.readable().await.map_err(CarryError::Connection)?;
        let mut has_room = true;
        let read = outlet.fill_with(|space| {
            has_room = !space.is_empty();
            if has_room { connection.try_read(space) } else { Ok(0) }
        });
        match read {
            Ok(0) if has_room => {
                outlet.close();
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if is_for_later(&error) => {}
            Err(error) => return Err(CarryError::Connection(error)),
        }
    }
}

fn address(ask: &Forward) -> Result<SocketAddr, Fault> {
    let host = match &ask.address {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text.parse().map_err(|_| {
            let message =
                format!("{:?} is not a numeric address", protocol::fault::clip(text.clone()));
            Fault::new(FaultCode::Invalid, message)
        })?,
    };
    if ask.port == 0 {
        return Err(Fault::new(FaultCode::Invalid, "port 0 is not a port to connect to"));
    }
    Ok(SocketAddr::new(host, ask.port))
}

fn refused(what: &str, error: &io::Error) -> Fault {
    match error.raw_os_error() {
        Some(errno) => {
            Fault::io(format!("{what}: {}", nix::errno::Errno::from_raw(errno).desc()), errno)
        }
        None => Fault::new(FaultCode::Io, format!("{what}: {error}")),
    }
}
