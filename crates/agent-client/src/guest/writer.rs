//! The writing ends of streams: into a program, into a connection, and uploads, which are answered
//! when all has arrived.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use protocol::StreamId;

use super::provenance::{FileAccount, InputAccount, ReceivedFile};
use super::typed::TypedInput;
use super::{GuestError, Pending};
use crate::link::Link;

/// The writing end of a stream. Written bytes are kept until the agent has them, over cuts of the
/// link. Dropping it aborts the stream, unless it was finished.
#[derive(Debug)]
pub struct Writer {
    link: Link,
    stream: StreamId,
    /// Who records what is written.
    typed: Option<TypedInput>,
    /// What it has sent, until nothing more comes.
    account: Mutex<Option<InputAccount>>,
}

impl Writer {
    pub(super) fn new(link: Link, stream: StreamId) -> Self {
        Self { link, stream, typed: None, account: Mutex::default() }
    }

    /// The same writer, and what it writes is recorded.
    pub(super) fn recorded(mut self, typed: Option<TypedInput>) -> Self {
        self.typed = typed;
        self
    }

    /// The same writer, and what it writes is accounted for.
    pub(super) fn accounted(mut self, account: Option<InputAccount>) -> Self {
        self.account = Mutex::new(account);
        self
    }

    /// It is recorded when the agent has reported where it begins, which is before it has any of it.
    fn end_account(&self, closed: bool) {
        // A panic while bytes are added leaves sums that are never used.
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(account) = account {
            self.link.when_placed(self.stream, move |end| account.ended(end, closed));
        }
    }

    /// Writes all of `bytes`, waiting for room as often as needed. If it is cancelled, a part may
    /// have been written; [`Writer::poll_write`] returns how much.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), GuestError> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| self.poll_write(bytes, cx)).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Takes as much of `bytes` as there is room for, and says how much.
    pub fn poll_write(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, GuestError>> {
        let mut write = || self.link.poll_write(self.stream, bytes, cx).map_err(GuestError::from);
        let written = match &self.typed {
            Some(typed) => typed.record(bytes, write),
            None => write(),
        };
        if let Poll::Ready(Ok(count)) = &written
            && let Some(account) = self.account.get_mut().unwrap_or_else(PoisonError::into_inner)
        {
            account.add(&bytes[..*count]);
        }
        written
    }

    /// Ends the stream, waits until the agent has all of it, and returns the end's offset. If it is
    /// cancelled, the stream is still ended.
    pub async fn finish(self) -> Result<u64, GuestError> {
        self.close();
        self.done().await
    }

    /// Waits until the agent has all of the stream, which must be closed, and returns the end's offset.
    pub async fn done(&self) -> Result<u64, GuestError> {
        Ok(poll_fn(|cx| self.link.poll_done(self.stream, cx)).await?)
    }

    /// The offset below which the agent has passed all bytes on, by its last acknowledgement. If the agent
    /// has given the stream up, it has passed on no others.
    pub fn taken(&self) -> Option<u64> {
        self.link.taken_offset(self.stream)
    }

    /// The offset of the next byte, once the agent has reported where the stream begins.
    pub fn offset(&self) -> Option<u64> {
        self.link.write_offset(self.stream)
    }

    /// Says that nothing more will be written. From then on dropping it gives nothing up.
    pub fn close(&self) {
        self.link.close_outbox(self.stream);
        self.end_account(true);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end_account(false);
        self.link.drop_outbox(self.stream);
    }
}

/// The result of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    /// Files, directories and links that were unpacked; 1 for a file.
    pub entries: u64,
}

/// A file or an archive on its way into the guest.
#[derive(Debug)]
pub struct Upload {
    writer: Writer,
    written: Pending<Written>,
    account: Option<FileAccount>,
}

impl Upload {
    pub(super) fn new(writer: Writer, written: Pending<Written>) -> Self {
        Self { writer, written, account: None }
    }

    pub(super) fn accounted(mut self, account: Option<FileAccount>) -> Self {
        self.account = account;
        self
    }

    /// The same upload, of something that the bridge itself puts there: nobody's input.
    #[must_use]
    pub fn of_the_bridge(self) -> Self {
        self.accounted(None)
    }

    /// Writes all of `bytes`, waiting for room as often as needed. Fails with the agent's reason as
    /// soon as that is known.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        self.writer.write(bytes).await?;
        if let Some(account) = &mut self.account {
            account.add(bytes);
        }
        Ok(())
    }

    /// Ends the upload and waits until the agent has put it in its place.
    pub async fn finish(self) -> Result<Written, GuestError> {
        Ok(self.finish_accounted().await?.0)
    }

    /// The same, and what was sent, if somebody keeps that.
    pub async fn finish_accounted(self) -> Result<(Written, Option<ReceivedFile>), GuestError> {
        self.writer.close();
        let written = self.written.await?;
        Ok((written, self.account.map(FileAccount::arrived)))
    }
}
