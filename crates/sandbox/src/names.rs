//! Who besides this registry has a say about names: a fleet, where one bridge at most has a name.
//!
//! ```text
//!  claim, or a create that was placed here ──▶ the sandbox is made ──▶ holds? ──▶ it runs … it is removed ──▶ release
//! ```
//!
//! The registry calls it; `node` implements it. A bridge of its own has none.

use super::{Labels, Record, Returning, SandboxRef};
use crate::refusal::Code;
use machine::BoxFuture;

/// The life of a sandbox for which a name was given: another life under the same name has another.
pub type Incarnation = String;

/// Gives names.
pub trait Names: Send + Sync {
    /// Takes the name of a sandbox that is about to be made here.
    fn claim<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<Incarnation, NameRefused>>;

    /// The same for one whose name was taken for this bridge before.
    fn take(&self, incarnation: &str, which: &SandboxRef) -> Result<(), NameRefused>;

    /// Refuses what asks for a node that this bridge is not.
    fn suits(&self, node_labels: &Labels) -> Result<(), NameRefused>;

    /// Keeps what a sandbox of this bridge is made of again when it is lost, until it is released.
    fn keep<'a>(&'a self, returning: &'a Returning) -> BoxFuture<'a, Result<(), NameRefused>>;

    /// A sandbox that is made again when it is lost has changed: its times to live and its egress are those of the record
    /// then. With an object, it begins with the snapshot that was exported there.
    fn changed<'a>(
        &'a self,
        record: &'a Record,
        exported: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), NameRefused>>;

    /// A sandbox has stopped while its name was this bridge's: it is not made again.
    fn stopped(&self, incarnation: &str);

    /// Whether the name is still this bridge's.
    fn holds(&self, incarnation: &str) -> bool;

    /// Nothing is left of the sandbox. Returns when its name is free, or cannot be given back now.
    fn release<'a>(&'a self, incarnation: &'a str) -> BoxFuture<'a, ()>;
}

/// Why a name was not given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NameRefused {
    pub code: Code,
    pub why: String,
}
