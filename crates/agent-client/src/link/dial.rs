//! From an [`Address`] to a connected [`Socket`], one try at a time.
//!
//! The driver and `Link::connect` call it. It sends only the handshake of a hybrid or serial
//! socket, and passes on what follows the other side's line of it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_vsock::{VsockAddr, VsockStream};

use super::limits::{BACK_OFF_MAX, BACK_OFF_MIN, HANDSHAKE_LINE_BYTES_MAX, WELCOME_FIRST};
use super::random::random;
use super::{Address, LinkError, Socket, serial};

/// Connects once. Waits as long as the other side lets it; callers set a deadline.
pub async fn dial(address: &Address) -> Result<Socket, LinkError> {
    let failed = |source| LinkError::Dial { address: address.clone(), source: Arc::new(source) };
    match address {
        Address::Unix { path } => {
            let stream = UnixStream::connect(path).await.map_err(failed)?;
            Socket::try_from(stream).map_err(failed)
        }
        Address::Hybrid { path, port } => {
            let stream = UnixStream::connect(path).await.map_err(failed)?;
            let socket = Socket::try_from(stream).map_err(failed)?;
            let reply = ask_port(&socket, *port).await.map_err(failed)?;
            if !reply.starts_with(b"OK ") {
                let reply = String::from_utf8_lossy(&reply).trim_end().to_owned();
                return Err(LinkError::Handshake { address: address.clone(), reply });
            }
            Ok(socket)
        }
        Address::Serial { path } => {
            let stream = serial::call(path).await.map_err(failed)?;
            Socket::try_from(stream).map_err(failed)
        }
        Address::Vsock { cid, port } => {
            let stream = VsockStream::connect(VsockAddr::new(*cid, *port)).await.map_err(failed)?;
            // The stream has no way to give its descriptor away; a duplicate is the same socket.
            let descriptor = stream.as_fd().try_clone_to_owned().map_err(failed)?;
            Socket::new(descriptor).map_err(failed)
        }
    }
}

/// Asks a machine monitor for a port of its guest and reads the one line that it answers.
///
/// The request is sent in one write, because some monitors read it only once. The line is read byte
/// by byte, because the guest's first bytes may follow it directly.
async fn ask_port(socket: &Socket, port: u32) -> io::Result<Vec<u8>> {
    socket.write_all(format!("CONNECT {port}\n").as_bytes()).await?;
    let mut line = Vec::with_capacity(HANDSHAKE_LINE_BYTES_MAX);
    while line.len() < HANDSHAKE_LINE_BYTES_MAX {
        let mut byte = [0];
        if socket.read(&mut byte).await? == 0 {
            // It ended within the line, so it is no answer, whatever it begins with.
            line.clear();
            break;
        }
        if byte == *b"\n" {
            return Ok(line);
        }
        line.extend_from_slice(&byte);
    }
    // A line without an end is no answer either.
    if line.starts_with(b"OK ") {
        line.clear();
    }
    Ok(line)
}

/// For how long the dialled socket has had no listener.
#[derive(Debug)]
pub struct Absence {
    since: Option<Instant>,
    max: Duration,
}

impl Absence {
    pub fn of_at_most(max: Duration) -> Self {
        Self { since: None, max }
    }

    /// Records the result of a try; returns whether another is useless.
    pub fn lasts_too_long(&mut self, error: &LinkError) -> bool {
        if !error.is_absence() {
            self.since = None;
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= self.max
    }
}

/// The pauses before tries: none before the first, then doubling, bounded, and none quite like the
/// next, so that many bridges that lost one host do not come back in step.
#[derive(Debug, Default)]
pub struct BackOff {
    next: Option<Duration>,
}

impl BackOff {
    /// The pause before the next try: between half of its nominal length and all of it.
    pub fn pause(&mut self) -> Duration {
        let Some(nominal) = self.next else {
            self.next = Some(BACK_OFF_MIN);
            return Duration::ZERO;
        };
        self.next = Some((nominal * 2).min(BACK_OFF_MAX));
        let half = nominal / 2;
        half + half.mul_f64((random() % 1024) as f64 / 1024.0)
    }
}

/// How long a try waits for its welcome: short at first if others follow, because a try may be stuck where
/// the next one is not.
#[derive(Debug)]
pub struct Patience {
    next: Duration,
    max: Duration,
}

impl Patience {
    pub fn of_one_try(max: Duration) -> Self {
        Self { next: max, max }
    }

    pub fn of_many_tries(max: Duration) -> Self {
        Self { next: WELCOME_FIRST.min(max), max }
    }

    /// The pause before the next try.
    pub fn take(&mut self) -> Duration {
        let doubled = (self.next * 2).min(self.max);
        std::mem::replace(&mut self.next, doubled)
    }
}
