//! A link over a line that has no connections: the calling, and the carrying of its bytes.
//!
//! `dial` calls it, and the machines whose agents cannot call. The socket at the end of such a line is
//! a monitor's, which serves one caller at a time; the next one waits for an answer until the one
//! before has gone. What the bytes mean is `protocol::serial`'s.

use std::io;
use std::path::Path;

use protocol::serial::{Answer, LinkNumber};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::dial::random;

/// What is carried at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Calls the agent at the end of a line, and gives the link that begins with its answer. Waits as long
/// as the agent lets it; callers set a deadline.
pub async fn call(path: &Path) -> io::Result<UnixStream> {
    let (mut from_agent, mut to_agent) = UnixStream::connect(path).await?.into_split();
    let number = LinkNumber::drawn(random());
    to_agent.write_all(&number.call()).await?;
    let mut answer = Answer::to(number);
    let mut buffer = vec![0; CHUNK_BYTES];
    let behind = loop {
        let count = from_agent.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(behind) = answer.find(&buffer[..count]) {
            break behind.to_vec();
        }
    };
    let (ours, theirs) = UnixStream::pair()?;
    let (from_us, mut to_us) = theirs.into_split();
    tokio::spawn(async move {
        // Either end of either direction is the end of the link.
        tokio::select! {
            _ = wrap(from_us, to_agent, number) => {}
            _ = async {
                to_us.write_all(&behind).await?;
                pass_on(from_agent, to_us).await
            } => {}
        }
    });
    Ok(ours)
}

/// Carries our bytes to the agent, in records of the link.
async fn wrap(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: LinkNumber,
) -> io::Result<()> {
    let (mut buffer, mut records) = (vec![0; CHUNK_BYTES], Vec::new());
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        records.clear();
        number.wrap(&buffer[..count], &mut records);
        to.write_all(&records).await?;
    }
}

/// Carries the agent's bytes to us.
async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
    }
}
