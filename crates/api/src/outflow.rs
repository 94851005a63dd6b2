//! Bytes on their way from a guest or a file of the host to a client: a task for each, which ends
//! with them, with the client or at the deadline of the call.

use std::fs::File;
use std::io::{self, SeekFrom};

use bytes::Bytes;
use protocol::limits::CREDIT_BYTES_INITIAL;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::mpsc;

use super::body::{Gone, Outgoing, Sink};
use super::call::{Call, passed};
use super::limits::STREAM_BYTES;
use super::loglines::{self, Line};
use agent_client::guest::{GuestError, Output, Piece};
use sandbox::Activity;
use sandbox::limits::SNAPSHOT_PIECE_BYTES;
use sandbox::refusal::Refusal;

/// What is read of a file at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Where bytes come from.
pub enum Source {
    /// While they come, something is at work in the sandbox.
    Guest { output: Output, activity: Option<Activity> },
    /// So many bytes of a file, from `first` on.
    File { file: File, first: u64, length: u64 },
    /// Pieces that are made as they are wanted.
    Pieces(mpsc::Receiver<io::Result<Bytes>>),
}

/// A body with the bytes of `source`. It is cut off unless all of them have come, so that no client
/// takes a part for the whole. What waits for a slow client is counted.
pub fn outflow(call: &Call, source: Source, length: Option<u64>) -> Result<Outgoing, Refusal> {
    let waiting_bytes = match &source {
        Source::Guest { .. } => STREAM_BYTES + CREDIT_BYTES_INITIAL as usize,
        Source::File { .. } => STREAM_BYTES,
        Source::Pieces(pieces) => STREAM_BYTES + pieces.max_capacity() * SNAPSHOT_PIECE_BYTES,
    };
    let portion = call.memory.portion(waiting_bytes)?;
    let (sink, body) = Outgoing::pieces(length);
    let (deadline, request_id) = (call.ends_at(), call.request_id.clone());
    tokio::spawn(async move {
        let _portion = portion;
        let carried = tokio::select! {
            carried = carry(source, &sink) => carried,
            // The client is gone; dropping the source tells the guest.
            () = sink.closed() => Err(StreamError::Client(Gone)),
            () = passed(deadline) => Err(StreamError::Deadline),
        };
        match carried {
            Ok(()) => sink.finish(),
            Err(StreamError::Client(Gone)) => {}
            Err(_) if !loglines::admit(Line::Served) => {}
            Err(error) => {
                let request = &*request_id.0;
                tracing::info!(target: "burrow::http", request, %error, "an answer was cut off");
            }
        }
    });
    Ok(body)
}

/// Why an answer is not whole.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Client(#[from] Gone),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error("bytes {from} to {to} no longer exist")]
    Gap { from: u64, to: u64 },
    #[error("the file cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("the deadline of the call has passed")]
    Deadline,
}

async fn carry(source: Source, sink: &Sink) -> Result<(), StreamError> {
    match source {
        Source::Guest { output, activity: _activity } => carry_output(output, sink).await,
        Source::File { file, first, length } => {
            carry_file(tokio::fs::File::from_std(file), first, length, sink).await
        }
        Source::Pieces(mut pieces) => {
            while let Some(piece) = pieces.recv().await {
                sink.send(piece?).await?;
            }
            Ok(())
        }
    }
}

async fn carry_output(mut output: Output, sink: &Sink) -> Result<(), StreamError> {
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => sink.send(bytes).await?,
            Piece::Gap { from, to } => return Err(StreamError::Gap { from, to }),
            Piece::End => return Ok(()),
            Piece::Failed(error) => return Err(error.into()),
        }
    }
}

async fn carry_file(
    mut file: tokio::fs::File,
    first: u64,
    length: u64,
    sink: &Sink,
) -> Result<(), StreamError> {
    file.seek(SeekFrom::Start(first)).await?;
    let mut left = length;
    while left > 0 {
        let mut piece = vec![0; left.min(PIECE_BYTES as u64) as usize];
        let count = file.read(&mut piece).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        piece.truncate(count);
        sink.send(piece).await?;
        left -= count as u64;
    }
    Ok(())
}
