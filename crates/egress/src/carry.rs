//! Copies bytes between a stream of the guest and a connection of the host, each direction until
//! its own end.
//!
//! A broken connection is never passed on as an orderly end: if anything ends a connection before both
//! directions are finished, both sides are reset.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::http::{BadRequest, LastAnswer, Requests, agrees};
use super::limits::{IDLE_LOOKS, READ_BYTES};
use super::meter::{LimitReached, Meter};
use agent_client::guest::{GuestError, Output, Piece, Writer};

/// How long a refused guest may take to read the refusal.
pub const LINGER: Duration = Duration::from_secs(2);

/// Why a connection ended before both sides were finished.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error("the connection to the server broke: {0}")]
    Connection(#[from] io::Error),
    #[error("the connection to the guest broke: {0}")]
    Guest(#[from] GuestError),
    #[error("bytes {from} to {to} no longer exist")]
    Gap { from: u64, to: u64 },
    #[error("a later request is refused: {0}")]
    Request(#[from] BadRequest),
    /// Only for a connection that is read on its way; the others are refused before they begin.
    #[error("its request is refused: {0}")]
    FirstRequest(BadRequest),
    #[error(transparent)]
    Spent(#[from] LimitReached),
    #[error("TLS with {with}: {source}")]
    Tls { with: &'static str, source: io::Error },
    #[error("no data for {} s", idle.as_secs())]
    Idle { idle: Duration },
    #[error("no rule allows it any more")]
    Forbidden,
}

impl CarryError {
    /// Whether the operator's word has ended it, and neither side.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::Spent(_) | Self::Idle { .. } | Self::Forbidden)
    }
}

/// The guest's end of a connection, with bytes that were read and not yet taken.
#[derive(Debug)]
pub struct Stream {
    writer: Writer,
    output: Output,
    held: Vec<u8>,
    ended: bool,
}

impl Stream {
    pub fn new(writer: Writer, output: Output) -> Self {
        Self { writer, output, held: Vec::new(), ended: false }
    }

    /// The bytes that were read and not yet taken.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Reads more, and says whether there was any.
    pub async fn fill(&mut self) -> Result<bool, CarryError> {
        let more = next(&mut self.output).await?;
        self.ended |= more.is_none();
        let is_more = more.is_some();
        self.held.extend(more.unwrap_or_default());
        Ok(is_more)
    }

    /// Takes the held bytes.
    pub fn take_held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Drops the first held bytes.
    pub fn skip(&mut self, count: usize) {
        self.held.drain(..count.min(self.held.len()));
    }

    /// Takes so many bytes; `None` when there are not so many.
    pub async fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.held.len() < count {
            if !self.fill().await.ok()? {
                return None;
            }
        }
        let rest = self.held.split_off(count);
        Some(std::mem::replace(&mut self.held, rest))
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), CarryError> {
        Ok(self.writer.write(bytes).await?)
    }

    pub async fn finish(self) -> Result<(), CarryError> {
        self.writer.finish().await?;
        Ok(())
    }

    /// Sends a final message and gives the guest time to read it: dropping a stream at once resets
    /// the connection and loses the message.
    pub async fn part(mut self, word: &[u8]) {
        let parting = async {
            self.writer.write(word).await.ok()?;
            self.writer.finish().await.ok()?;
            while next(&mut self.output).await.ok()?.is_some() {}
            Some(())
        };
        let _ = timeout(LINGER, parting).await;
    }
}

async fn next(output: &mut Output) -> Result<Option<Vec<u8>>, CarryError> {
    match output.next().await {
        Piece::Bytes { bytes, .. } => Ok(Some(bytes)),
        Piece::Gap { from, to } => Err(CarryError::Gap { from, to }),
        Piece::End => Ok(None),
        Piece::Failed(error) => Err(error.into()),
    }
}

/// The bytes that all connections of one sandbox have carried so far, both ways. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub struct Carried(Arc<[AtomicU64; 2]>);

impl Carried {
    pub fn sent_bytes(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    pub fn received_bytes(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }
}

/// Counts the bytes of a connection, and adds them to those of its sandbox.
#[derive(Debug, Default)]
pub struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    all: Carried,
}

impl Tally {
    pub fn of(all: Carried) -> Self {
        Self { all, ..Self::default() }
    }

    fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.all.0[0].fetch_add(bytes, Ordering::Relaxed);
    }

    fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.all.0[1].fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn moved(&self) -> u64 {
        self.sent_bytes().wrapping_add(self.received_bytes())
    }
}

/// The bytes to send first, and the checks for everything after them.
#[derive(Debug, Default)]
pub struct Plan {
    pub first: Vec<u8>,
    /// Absent if nothing is checked any more.
    pub requests: Option<Requests>,
    /// It is a greeting of TLS.
    pub is_tls: bool,
}

/// The other end of a connection: the host's, or the broker's on the way there.
pub trait Upstream {
    fn halves(&mut self) -> (impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send);

    /// Makes the end look like a broken connection.
    fn reset(&self);
}

impl Upstream for TcpStream {
    fn halves(&mut self) -> (impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send) {
        self.split()
    }

    fn reset(&self) {
        // If it cannot be, the connection is gone already.
        let _ = self.set_zero_linger();
    }
}

impl Upstream for DuplexStream {
    fn halves(&mut self) -> (impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send) {
        tokio::io::split(self)
    }

    // The other end is dropped with this one.
    fn reset(&self) {}
}

/// Carries a connection to its end.
pub async fn carry(
    stream: Stream,
    mut connection: impl Upstream,
    plan: Plan,
    meter: &Meter,
    idle: Duration,
    tally: &Tally,
) -> Result<(), CarryError> {
    let (reader, sink) = connection.halves();
    let awaits = plan.requests.as_ref().is_some_and(Requests::awaits_agreement);
    let is_only_one = plan.requests.as_ref().is_some_and(Requests::is_only_one);
    let last = is_only_one.then(LastAnswer::default);
    let (agreed, agreement) = oneshot::channel();
    let agreed = awaits.then_some(agreed);
    let Stream { writer, output, ended, .. } = stream;
    // Both are kept until both are over: an end that is dropped before is given up.
    let carried = {
        let mut up = ToServer { output, ended, sink, meter, tally };
        let mut down = ToGuest { reader, writer: Some(writer), meter, tally, agreed, last };
        let both = async { tokio::try_join!(up.run(plan, agreement), down.run()) };
        tokio::select! {
            carried = both => carried.map(drop),
            () = stays_idle(tally, idle) => Err(CarryError::Idle { idle }),
        }
    };
    if carried.is_err() {
        connection.reset();
    }
    carried
}

/// Resolves when nothing has moved for so long.
async fn stays_idle(tally: &Tally, idle: Duration) {
    let (mut before, mut still) = (tally.moved(), 0);
    while still < IDLE_LOOKS {
        tokio::time::sleep(idle / IDLE_LOOKS).await;
        let now = tally.moved();
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
}

struct ToServer<'a, W> {
    output: Output,
    ended: bool,
    sink: W,
    meter: &'a Meter,
    tally: &'a Tally,
}

impl<W: AsyncWrite + Unpin> ToServer<'_, W> {
    async fn run(
        &mut self,
        plan: Plan,
        agreement: oneshot::Receiver<bool>,
    ) -> Result<(), CarryError> {
        let Plan { first, mut requests, .. } = plan;
        self.send(&first).await?;
        if requests.as_ref().is_some_and(Requests::awaits_agreement) {
            if agreement.await.unwrap_or(false) {
                requests = None;
            } else if let Some(requests) = &mut requests {
                requests.declined();
            }
        }
        let mut judged = Vec::new();
        while !self.ended {
            let Some(bytes) = next(&mut self.output).await? else { break };
            match &mut requests {
                // Nothing more is forwarded, but the client is still read to its end: dropping its stream
                // would reset the connection and lose the part of the answer that it has not read.
                Some(requests) if requests.is_over() => self.meter.pass(bytes.len()).await?,
                Some(requests) => {
                    judged.clear();
                    let pushed = requests.push(&bytes, &mut judged);
                    self.send(&judged).await?;
                    pushed?;
                }
                None => self.send(&bytes).await?,
            }
        }
        if requests.as_ref().is_some_and(Requests::is_over) {
            return Ok(());
        }
        Ok(self.sink.shutdown().await?)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), CarryError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.meter.pass(bytes.len()).await?;
        self.sink.write_all(bytes).await?;
        self.tally.add_sent(bytes.len() as u64);
        Ok(())
    }
}

struct ToGuest<'a, R> {
    reader: R,
    /// Absent after its end.
    writer: Option<Writer>,
    meter: &'a Meter,
    tally: &'a Tally,
    /// Receives whether the server agrees to switch protocols.
    agreed: Option<oneshot::Sender<bool>>,
    /// Present if exactly one answer is allowed.
    last: Option<LastAnswer>,
}

impl<R: AsyncRead + Unpin> ToGuest<'_, R> {
    async fn run(&mut self) -> Result<(), CarryError> {
        let mut buffer = vec![0; READ_BYTES];
        let mut begun = Vec::new();
        loop {
            let count = self.reader.read(&mut buffer).await?;
            if count == 0 {
                break;
            }
            let bytes = &buffer[..count];
            self.meter.pass(count).await?;
            let goes_on = match &mut self.last {
                Some(last) => last.push(bytes),
                None => Cow::Borrowed(bytes),
            };
            if let Some(writer) = self.writer.as_mut().filter(|_| !goes_on.is_empty()) {
                writer.write(&goes_on).await?;
            }
            self.tally.add_received(count as u64);
            if self.agreed.is_some() {
                begun.extend_from_slice(bytes);
                if let Some(agrees) = agrees(&begun)
                    && let Some(agreed) = self.agreed.take()
                {
                    // It may come too late; then nobody waits for it.
                    let _ = agreed.send(agrees);
                }
            }
        }
        if let Some(mut writer) = self.writer.take() {
            let rest = self.last.take().map(LastAnswer::rest).unwrap_or_default();
            if !rest.is_empty() {
                writer.write(&rest).await?;
            }
            writer.finish().await?;
        }
        Ok(())
    }
}
