//! The forms of a log of output: which there are, their tracks, and what a record is. Pure.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::ids::{Incarnation, Name, NodeId, Revision};
use crate::limits::LOG_SHARDS;

/// The log of one life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogId {
    pub name: Name,
    pub incarnation: Incarnation,
}

impl LogId {
    /// Which of the streams has it: lives are drawn at random.
    pub fn shard(&self) -> usize {
        (self.incarnation.0 % LOG_SHARDS as u128) as usize
    }
}

/// One subject of a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    Lines,
    /// Each may be any text.
    Output {
        session: Arc<str>,
        run: Arc<str>,
        channel: Arc<str>,
    },
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line, or bytes.
    Data,
    /// There is nothing from its offset to its end.
    Gap,
    /// Nothing follows.
    Seal,
}

/// What is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub form: Form,
    pub offset: u64,
    /// Where the next record begins.
    pub end: u64,
    pub payload: Bytes,
    /// Who has written it.
    pub node: NodeId,
}

/// What the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub track: Track,
    pub revision: Revision,
    /// By the clock of the store.
    pub at_ms: u64,
    pub draft: Draft,
}

/// What is read of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    Lines,
    /// The outputs of one run of a session.
    Outputs {
        session: Arc<str>,
        run: Arc<str>,
    },
}

/// From where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All records after this one.
    After(Revision),
    /// The last record of each track.
    LastOfEach,
}

impl fmt::Display for LogId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.name, self.incarnation)
    }
}
