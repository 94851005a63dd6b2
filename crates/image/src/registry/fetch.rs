//! One blob on its way from a registry to the disk, in as many attempts as it takes.
//!
//! ```text
//!   begin ──▶ ask from where we are ──▶ pieces ──▶ finish
//!               ▲                        │
//!               └── pause ◀── cut, slow ─┘
//! ```
//!
//! Pieces are hashed and written by threads that may block, so that one task carries several blobs.

use super::error::PullError;
use super::limits::{ATTEMPT_BYTES_ENOUGH, PIECE_BYTES};
use super::progress::ProgressSender;
use super::retries::Retries;
use super::source::Source;
use super::transport::{Body, RegistryResponse};
use crate::blobs::{BlobError, BlobState, Blobs, Partial};
use crate::digest::Digest;

/// A blob that is being fetched.
struct Fetch<'a> {
    source: &'a Source<'a>,
    teller: ProgressSender<'a>,
    digest: Digest,
    size: u64,
    /// Gone while a thread writes, and after an error that has removed it.
    partial: Option<Partial>,
}

/// Fetches a blob, unless it is here. If dropped, it keeps what has arrived for the next attempt.
pub(super) async fn fetch(
    source: &Source<'_>,
    blobs: &Blobs,
    digest: Digest,
    size: u64,
    teller: ProgressSender<'_>,
) -> Result<(), PullError> {
    let mut retries = Retries::new(source.options.times.retry_pause, teller);
    let mut was_resumed = None;
    let mut partial = None;
    loop {
        let begun = match partial.take() {
            Some(partial) => BlobState::Partial(partial),
            None => blobs.begin(digest, size).await?,
        };
        let BlobState::Partial(begun) = begun else {
            teller.whole(digest);
            return Ok(());
        };
        let offset = begun.offset();
        was_resumed.get_or_insert(offset > 0);
        let mut fetch = Fetch { source, teller, digest, size, partial: Some(begun) };
        match fetch.attempt().await {
            // The remains of an earlier pull may be wrong: once, everything is fetched again.
            Err(PullError::Digest { .. }) if was_resumed == Some(true) => was_resumed = Some(false),
            Ok(()) => {
                teller.whole(digest);
                return Ok(());
            }
            Err(error) => {
                partial = fetch.partial;
                let reached = partial.as_ref().map_or(0, Partial::offset);
                if reached.saturating_sub(offset) >= ATTEMPT_BYTES_ENOUGH {
                    retries.renew();
                }
                retries.after(error).await?;
            }
        }
    }
}

impl Fetch<'_> {
    fn what(&self) -> String {
        format!("blob {}", self.digest)
    }

    fn offset(&self) -> u64 {
        self.partial.as_ref().map_or(0, Partial::offset)
    }

    async fn attempt(&mut self) -> Result<(), PullError> {
        let offset = self.offset();
        self.teller.bytes(self.digest, offset);
        if offset < self.size {
            let mut answer = self.ask(offset).await?;
            let skipped = self.skipped(&answer)?;
            self.fill(&mut answer.body, skipped).await?;
        }
        self.finish().await
    }

    async fn ask(&mut self, offset: u64) -> Result<RegistryResponse, PullError> {
        match self.source.blob(&self.digest, (offset > 0).then_some(offset)).await {
            // It has fewer bytes than are here, so these are not its beginning.
            Err(PullError::Status { status: 416, .. }) if offset > 0 => {
                self.with_partial(Partial::start_again).await?;
                self.source.blob(&self.digest, None).await
            }
            answered => answered,
        }
    }

    /// How many bytes of the answer are here already, once its head agrees with the expected size.
    fn skipped(&self, answer: &RegistryResponse) -> Result<u64, PullError> {
        let (offset, size) = (self.offset(), self.size);
        let skipped = if answer.status == 206 {
            let range = answer.header("content-range").and_then(parse_content_range);
            match range {
                Some((from, total))
                    if from == offset && total.is_none_or(|total| total == size) =>
                {
                    0
                }
                _ => {
                    let why = format!(
                        "the request was for byte {offset} and after, but the answer holds another range"
                    );
                    let at = self.source.at();
                    return Err(PullError::Malformed { at, what: self.what(), why });
                }
            }
        } else {
            offset
        };
        let content_length =
            answer.header("content-length").and_then(|length| length.parse::<u64>().ok());
        let wanted = size - offset + skipped;
        match content_length.filter(|content_length| *content_length != wanted) {
            Some(found) => {
                Err(PullError::Length { at: self.source.at(), what: self.what(), wanted, found })
            }
            None => Ok(skipped),
        }
    }

    /// Writes the body, also the part that arrived before an error.
    async fn fill(&mut self, body: &mut Body, mut skipped: u64) -> Result<(), PullError> {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let trouble = loop {
            let next = match body.next().await {
                Ok(Some(next)) => next,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            self.source.count(next.len() as u64);
            let known = skipped.min(next.len() as u64);
            skipped -= known;
            piece.extend_from_slice(&next[known as usize..]);
            // More than the expected size is refused at once, before it reaches the disk.
            let reached = self.offset() + piece.len() as u64;
            if reached > self.size {
                let (at, what) = (self.source.at(), self.what());
                return Err(PullError::TooLarge { at, what, bytes_max: self.size });
            }
            if piece.len() >= PIECE_BYTES {
                self.write(std::mem::replace(&mut piece, Vec::with_capacity(PIECE_BYTES))).await?;
            }
        };
        if !piece.is_empty() {
            self.write(piece).await?;
        }
        match trouble {
            Some(trouble) => Err(trouble),
            None if self.offset() < self.size => Err(PullError::Short {
                at: self.source.at(),
                what: self.what(),
                wanted: self.size,
                found: self.offset(),
            }),
            None => Ok(()),
        }
    }

    async fn write(&mut self, piece: Vec<u8>) -> Result<(), PullError> {
        self.with_partial(move |partial| partial.write(&piece)).await?;
        self.teller.bytes(self.digest, self.offset());
        Ok(())
    }

    /// Lends the partial blob to a thread that may block. After an error it is gone.
    async fn with_partial(
        &mut self,
        work: impl FnOnce(&mut Partial) -> Result<(), BlobError> + Send + 'static,
    ) -> Result<(), PullError> {
        let mut partial = self.partial.take().expect("it is here until an error");
        let worked = tokio::task::spawn_blocking(move || work(&mut partial).map(|()| partial));
        self.partial = Some(worked.await.expect("writing does not panic")?);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), PullError> {
        let partial = self.partial.take().expect("it is here until an error");
        let finished = tokio::task::spawn_blocking(move || partial.finish());
        match finished.await.expect("finishing does not panic") {
            Err(BlobError::Digest { wanted, found }) => {
                Err(PullError::Digest { at: self.source.at(), what: self.what(), wanted, found })
            }
            finished => Ok(finished?),
        }
    }
}

/// The start of the part, and the whole length if it is known.
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((from.parse().ok()?, total))
}
