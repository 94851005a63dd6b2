//! TCP connections to ports inside the sandbox, each carried by one two-way stream.
//!
//! `router` calls it. It never resolves names: whoever wants a port knows the address. The other way
//! round it takes what programs send to addresses that stand for the host: see [`gates`].
//!
//! ```text
//!             ┌── Fin ─────► shut down for writing ──┐
//!  connected ─┤                                      ├─► both: closed
//!             └── EOF ─────► stream closed ──────────┘
//!  connected ──── either end fails ──► the other is reset
//! ```
//!
//! An end that breaks off is never passed on as an orderly one: a server that were shown a clean
//! end of an upload that was cut would take half of it for all.

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

/// How long a connection may take to come about. Within a sandbox it is at once or, when the
/// listener's queue is full, after the kernel's first repetitions.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long a client that keeps sending to a server that is gone is given to take what the server
/// had said, before the stream is reset.
const LINGER: Duration = Duration::from_secs(10);

/// Answers when the connection stands, or has arrived; its bytes then flow until both directions have
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
    // What is sent in one piece must not wait for the acknowledgement of the last. Where that cannot
    // be had the connection is gone, as will show.
    connection.set_nodelay(true).ok();
    task::spawn(async move {
        let carried = tokio::select! {
            biased;
            carried = carry(&connection, &inlet, &outlet) => carried,
            () = inlet.failed() => Err(Broken::Client),
        };
        if let Err(broken) = carried {
            // Makes the close a reset. If it cannot be, the connection is gone already.
            connection.set_zero_linger().ok();
            if let Broken::Connection(error) = broken {
                outlet.fail(&refused(&format!("the connection to {address} broke off"), &error));
            }
        }
    });
    Ok(Reply::Done {})
}

/// Why a connection ended before both sides had said all.
enum Broken {
    /// The client has given the stream up.
    Client,
    Connection(io::Error),
}

/// Carries both directions to their ends.
async fn carry(connection: &TcpStream, inlet: &Inlet, outlet: &Outlet) -> Result<(), Broken> {
    let mut upload = pin!(upload(connection, inlet));
    let mut download = pin!(download(connection, outlet));
    tokio::select! {
        uploaded = &mut upload => {
            uploaded?;
            download.await
        }
        downloaded = &mut download => {
            downloaded?;
            // A server that says no more may still listen.
            upload.await
        }
    }
}

/// Ends when the client has said all and the server was told.
async fn upload(connection: &TcpStream, inlet: &Inlet) -> Result<(), Broken> {
    let mut taken = 0;
    while let Some(bytes) = next(inlet).await? {
        if let Err(error) = write_all(connection, &bytes).await {
            // The server is gone, but its last words may still be on their way to the client: the
            // stream is not reset before the client has had time to take them and end it.
            let rest = drop_rest(inlet, taken + bytes.len() as u64);
            return timeout(LINGER, rest).await.unwrap_or(Err(Broken::Connection(error)));
        }
        taken += bytes.len() as u64;
        inlet.consumed(taken);
    }
    // A connection that is gone needs no end.
    shutdown(connection.as_raw_fd(), Shutdown::Write).ok();
    Ok(())
}

async fn drop_rest(inlet: &Inlet, mut taken: u64) -> Result<(), Broken> {
    inlet.consumed(taken);
    while let Some(bytes) = next(inlet).await? {
        taken += bytes.len() as u64;
        inlet.consumed(taken);
    }
    Ok(())
}

async fn next(inlet: &Inlet) -> Result<Option<Vec<u8>>, Broken> {
    inlet.next().await.map_err(|_| Broken::Client)
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

async fn download(connection: &TcpStream, outlet: &Outlet) -> Result<(), Broken> {
    loop {
        outlet.room().await.map_err(|_| Broken::Client)?;
        connection.readable().await.map_err(Broken::Connection)?;
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
            Err(error) => return Err(Broken::Connection(error)),
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
        return Err(Fault::new(FaultCode::Invalid, "port 0 is nobody's"));
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
