//! Reads and writes messages as lines of limited length.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Why the next line is not a message.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("a line is longer than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    #[error("the connection ended in the middle of a line")]
    Cut,
    #[error("a line is not a message: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a line of at most `bytes_max` bytes and what it says; `None` at the end.
pub async fn read_line<T: DeserializeOwned>(
    from: &mut (impl AsyncBufRead + Unpin),
    bytes_max: usize,
) -> Result<Option<T>, LineError> {
    let mut line = Vec::new();
    // One byte more than the text, for its end.
    from.take(bytes_max as u64 + 1).read_until(b'\n', &mut line).await?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        Some(_) if line.len() >= bytes_max => Err(LineError::TooLong { bytes_max }),
        Some(_) => Err(LineError::Cut),
    }
}

/// Writes a message as one line.
pub async fn write_line<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await
}
