//! Carries one TCP connection of this host over a two-way stream of a guest. Each direction goes to its own
//! end, so that half-closed connections work.
//!
//! A broken end is never passed on as an orderly one: if anything ends a connection before both
//! directions are finished, it is reset, and the stream is dropped.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use agent_client::guest::{GuestError, Output, Piece, Writer};

/// How much is read at once: one chunk of the link.
const READ_BYTES: usize = protocol::limits::CHUNK_BYTES_MAX;

/// Why a connection ended before both sides had finished.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error("bytes {from} to {to} no longer exist")]
    Gap { from: u64, to: u64 },
}

/// A connection that is reset when it is dropped before its end.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    is_over: bool,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, is_over: false }
    }

    pub async fn carry(mut self, writer: Writer, output: Output) -> Result<(), CarryError> {
        // A write must not wait for the acknowledgement of the previous one.
        self.stream.set_nodelay(true)?;
        let (reader, sink) = self.stream.split();
        tokio::try_join!(upwards(reader, writer), downwards(output, sink))?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_over {
            // Makes the close a reset. If it cannot be, the connection is gone already.
            let _ = self.stream.set_zero_linger();
        }
    }
}

async fn upwards(mut reader: ReadHalf<'_>, mut writer: Writer) -> Result<(), CarryError> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match reader.read(&mut buffer).await? {
            0 => break,
            count => writer.write(&buffer[..count]).await?,
        }
    }
    writer.finish().await?;
    Ok(())
}

async fn downwards(mut output: Output, mut sink: WriteHalf<'_>) -> Result<(), CarryError> {
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => sink.write_all(&bytes).await?,
            Piece::Gap { from, to } => return Err(CarryError::Gap { from, to }),
            Piece::End => break,
            Piece::Failed(error) => return Err(error.into()),
        }
    }
    Ok(sink.shutdown().await?)
}
