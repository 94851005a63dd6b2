//! A link over a line that has no connections: the calling, and the carrying of its bytes.
//!
//! `dial` calls it, and the machines whose agents cannot call. The socket at the end of such a line is a
//! monitor's, which serves one caller at a time; the next one waits for an answer until the previous one has
//! left. `protocol::serial` defines the bytes.

use std::io;
use std::path::Path;

use protocol::serial::{Answer, LinkNumber};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::sleep;

use super::limits::GOODBYE_FLUSH_MAX;
use super::random::random;

/// How much is copied at once.
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
        tokio::select! {
            written = to.write_all(&records) => written?,
            // The line accepts nobody else while this one is open.
            () = given_up(&from) => return Ok(()),
        }
    }
}

/// Resolves some time after the other end was closed, in which its last data can be sent.
async fn given_up(from: &OwnedReadHalf) {
    // Without urgent data, this is readiness for the end only.
    let _ = from.ready(Interest::PRIORITY).await;
    sleep(GOODBYE_FLUSH_MAX).await;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::UnixListener;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A monitor's line that accepts nothing any more, and its caller.
    async fn stuck() -> (UnixStream, UnixStream) {
        let path = std::env::temp_dir().join(format!("burrow-line-{:x}.sock", random()));
        let listener = UnixListener::bind(&path).unwrap();
        let answering = async {
            let (mut monitor, _) = listener.accept().await.unwrap();
            let mut called = Vec::new();
            while called.last() != Some(&b'\n') {
                monitor.read_buf(&mut called).await.unwrap();
            }
            let digits = called.len() - 17;
            let number = String::from_utf8_lossy(&called[digits..]).into_owned();
            monitor.write_all(format!("OK {number}").as_bytes()).await.unwrap();
            monitor
        };
        let (monitor, called) = tokio::join!(answering, call(&path));
        std::fs::remove_file(path).unwrap();
        (monitor, called.unwrap())
    }

    #[tokio::test]
    async fn a_line_is_released_although_it_takes_nothing_any_more() {
        let (monitor, mut ours) = timeout(SOON, stuck()).await.unwrap();
        // Until nothing is accepted any more.
        let flood = vec![7; 1 << 20];
        while timeout(Duration::from_millis(200), ours.write_all(&flood)).await.is_ok() {}
        drop(ours);
        // Checked separately: reading makes room, and writing ends it for another reason.
        let closed = monitor.ready(Interest::PRIORITY);
        timeout(SOON, closed).await.expect("the line is closed").unwrap();
    }

    #[tokio::test]
    async fn the_last_bytes_are_sent_before_the_end() {
        let (mut monitor, mut ours) = timeout(SOON, stuck()).await.unwrap();
        let last = vec![9; 3 << 20];
        let reading = async {
            let mut all = Vec::new();
            // It is slow to begin, as a busy machine is.
            sleep(Duration::from_millis(100)).await;
            monitor.read_to_end(&mut all).await.unwrap();
            all.retain(|byte| *byte == 9);
            all.len()
        };
        let saying = async {
            ours.write_all(&last).await.unwrap();
            drop(ours);
        };
        let (count, ()) = timeout(SOON, async { tokio::join!(reading, saying) }).await.unwrap();
        assert!(count >= last.len(), "{count}");
    }
}
