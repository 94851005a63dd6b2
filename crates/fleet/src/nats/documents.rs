//! Documents that all nodes have: bytes under a key, with the revision of the last write as its guard. Members decide
//! nothing about them; `node` keeps templates in it.

use std::time::Duration;

use async_nats::jetstream::consumer::push::Ordered;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use futures_util::StreamExt;

use super::forms::{Bucket, is_marker};
use super::{Link, StoreError, unavailable};
use crate::event::Outcome;
use crate::ids::{NodeId, Revision};
use crate::limits::MARKER_S;

/// Where no document is.
const BARRIER: &str = "barrier.";
/// Where documents of one kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shelf {
    /// All nodes watch these.
    Templates,
    /// What lost sandboxes are made of again, under their names. Nobody watches these.
    Returning,
}

impl Shelf {
    /// What the keys of its documents begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Templates => "of.",
            Self::Returning => "again.",
        }
    }
}

/// A document as the store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Of the write that made or removed it; 0 if there was none that the store remembers.
    pub revision: Revision,
    /// Absent if there is none.
    pub bytes: Option<Vec<u8>>,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Document {
        key: String,
        bytes: Option<Vec<u8>>,
    },
    /// Everything that was there when the watch began has been sent.
    AllTold,
}

/// All documents, and every change.
pub struct Documents {
    messages: Ordered,
    /// The write that marks where the watch began.
    barrier: u64,
    is_told: bool,
}

fn subject(shelf: Shelf, key: &str) -> String {
    format!("{}{}{key}", Bucket::Templates.prefix(), shelf.prefix())
}

impl Link {
    /// Which bucket it is: another one that was made again under the same name has another.
    pub fn documents_id(&self) -> String {
        self.templates.stream.cached_info().created.unix_timestamp_nanos().to_string()
    }

    pub async fn read_document(&self, shelf: Shelf, key: &str) -> Result<Document, StoreError> {
        let subject = subject(shelf, key);
        match self.templates.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => {
                let revision = Revision(message.sequence);
                let bytes = (!is_marker(&message.headers)).then(|| message.payload.to_vec());
                Ok(Document { revision, bytes })
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Ok(Document::default())
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Writes or removes a document, if the last write of it is still `expected`.
    pub async fn write_document(
        &self,
        shelf: Shelf,
        key: &str,
        expected: Revision,
        bytes: Option<&[u8]>,
    ) -> Outcome {
        let message = PublishMessage::build().expected_last_subject_sequence(expected.0);
        let message = match bytes {
            Some(bytes) => message.payload(Bytes::copy_from_slice(bytes)),
            // The marker that is left says that there was something, and goes by itself.
            None => message.header("KV-Operation", "DEL").ttl(Duration::from_secs(MARKER_S)),
        };
        self.publish(subject(shelf, key), message).await
    }

    /// Watches the templates.
    pub async fn watch_documents(&self, who: &NodeId) -> Result<Documents, StoreError> {
        let prefix = Bucket::Templates.prefix();
        let barrier = format!("{prefix}{BARRIER}{who}");
        let message = PublishMessage::build().payload(Bytes::from_static(b"{}"));
        let Outcome::Stored(last) = self.publish(barrier.clone(), message).await else {
            return Err(StoreError::Unavailable("the barrier of a watch was not stored".into()));
        };
        let filters = vec![subject(Shelf::Templates, ">"), barrier];
        let messages = self.last_of(&self.templates, filters).await?;
        Ok(Documents { messages, barrier: last.0, is_told: false })
    }
}

impl Documents {
    /// `None`: the watch has ended; begin another.
    pub async fn next(&mut self) -> Option<Change> {
        let own = subject(Shelf::Templates, "");
        loop {
            let message = self.messages.next().await?.ok()?;
            let sequence = message.info().ok()?.stream_sequence;
            if let Some(key) = message.subject.strip_prefix(own.as_str()) {
                let is_gone = message.headers.as_ref().is_some_and(is_marker);
                let bytes = (!is_gone).then(|| message.payload.to_vec());
                return Some(Change::Document { key: key.to_owned(), bytes });
            }
            if sequence >= self.barrier && !std::mem::replace(&mut self.is_told, true) {
                return Some(Change::AllTold);
            }
        }
    }
}
