//! Why something asked of a notebook did not happen.

use super::limits::{CACHE_KEY_BYTES_MAX, ID_BYTES_MAX, ORDERS_WAITING_MAX};
use super::manifest::ManifestError;
use super::seal::SealError;
use crate::store::StoreError;
use agent_client::guest::GuestError;
use sandbox::{SandboxError, SandboxRef};

/// See the module's description.
#[derive(Debug, thiserror::Error)]
pub enum NotebookError {
    #[error("there is no notebook {id} in {namespace}")]
    Unknown { namespace: String, id: String },
    #[error("the notebook name {id:?} is too long: use at most {ID_BYTES_MAX} bytes")]
    Name { id: String },
    #[error("a notebook keeps variables of python and node, not of {language:?}")]
    Language { language: String },
    #[error("the notebook {id} runs {language}")]
    OtherLanguage { id: String, language: String },
    #[error("{namespace} has {max} notebooks, which is the limit; remove some")]
    Full { namespace: String, max: u64 },
    /// The notebook does not own its sandbox, so it cannot create it.
    #[error("the notebook's sandbox {which} is not running: {why}")]
    SandboxGone { which: SandboxRef, why: String },
    #[error("a notebook cannot keep {what}, so its own sandbox cannot have it")]
    Place { what: &'static str },
    #[error("the cache key has {bytes} bytes, and the limit is {CACHE_KEY_BYTES_MAX}")]
    CacheKey { bytes: usize },
    #[error("the notebook {id} is in use by another bridge with the same directories")]
    Elsewhere { id: String },
    #[error("{ORDERS_WAITING_MAX} calls wait for this notebook, which is the limit")]
    Busy,
    #[error("the bridge is stopping")]
    Closed,
    /// The saved state was changed, or is older than the last one that was written.
    #[error("the notebook's saved variables cannot be trusted: {why}")]
    Damaged { why: String },
    /// The code beside the notebook's code in the interpreter has failed.
    #[error("the notebook's variables in its interpreter could not be read: {what}")]
    Keeper { what: String },
    #[error("the variables were not saved: the interpreter that held them has ended")]
    InterpreterEnded,
    #[error("the variables were not saved: {what}")]
    NotSaved { what: String },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("the notebook's saved variables on disk: {0}")]
    Seal(#[from] SealError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
