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
    #[error("a notebook's name has at most {ID_BYTES_MAX} bytes, and {id:?} is longer")]
    Name { id: String },
    #[error("a notebook keeps the variables of python or node, and not of {language:?}")]
    Language { language: String },
    #[error("the notebook {id} is one of {language}")]
    OtherLanguage { id: String, language: String },
    #[error("{namespace} has {max} notebooks, which is the limit; remove some")]
    Full { namespace: String, max: u64 },
    /// Its sandbox is not the notebook's to make.
    #[error("the notebook's sandbox {which} is not running: {why}")]
    SandboxGone { which: SandboxRef, why: String },
    #[error("{what} cannot be kept with a notebook, so its own sandbox cannot have it")]
    Place { what: &'static str },
    #[error("a cache key has at most {CACHE_KEY_BYTES_MAX} bytes, and this has {bytes}")]
    CacheKey { bytes: usize },
    #[error("the notebook {id} is in use by another bridge of these directories")]
    Elsewhere { id: String },
    #[error("{ORDERS_WAITING_MAX} calls wait for this notebook, which is the limit")]
    Busy,
    #[error("the bridge is stopping")]
    Closed,
    /// What is on disk was changed, or is older than what was written last.
    #[error("what was kept of the notebook's variables cannot be trusted: {why}")]
    Damaged { why: String },
    /// What runs beside the code in the interpreter has failed.
    #[error("the notebook's variables were not reached in its interpreter: {what}")]
    Keeper { what: String },
    #[error("the variables were not saved: {what}")]
    NotSaved { what: String },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("what is kept on disk of the notebook's variables: {0}")]
    Seal(#[from] SealError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
