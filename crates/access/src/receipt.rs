//! Receipts: what ran in a sandbox, what it wrote and how it ended, signed by this bridge.
//!
//! ```text
//!  log ── end of a session or a run ──┐
//!      ── files put in, input sent ───┤
//!  record of the sandbox ─────────────┤
//!  audit log: egress ─────────────────┴▶ Statement ─sign─▶ Receipt ──▶ receipts-….jsonl, each with the digest of
//!                                                            │          the one before it
//!                                       anybody, offline ◀───┘ verify(receipt, public key)
//! ```
//!
//! A receipt is issued once for a run of a session or of a context and kept; the next request gets the same one. It says what the
//! bridge has seen and what the agent reports: it proves who signed it and that nothing of it was changed since. A guest
//! that has broken its agent may report what it likes.

mod evidence;
mod ledger;
pub mod limits;
mod statement;

use std::io;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use ledger::Ledger;
pub use statement::{
    ContextRun, DecidedFor, Decision, Decisions, Digested, DisplayedForm, InputPart, Limits,
    Output, Ran, ReceivedFile, ReceivedFiles, ReceivedInput, Statement, Subject,
};

use crate::audit::Entry;
use host::hex;
use sandbox::log::LogError;

/// What is signed begins with this, so that a signature of ours means nothing elsewhere.
const PURPOSE: &[u8] = b"burrow receipt 1\n";

/// A signed statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    pub statement: Statement,
    /// The public key of the bridge, in URL-safe base64.
    pub key: String,
    /// Of the statement as compact JSON, in URL-safe base64.
    pub signature: String,
}

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    #[error("the session {session} has not ended, or its end is not in the log: it has no receipt")]
    NotEnded { session: String },
    #[error(
        "the log has no run{run} of the context {context}: a run is there when its events were read to their end"
    )]
    NoRun { context: String, run: String },
    #[error("cannot read or write the receipts in {directory:?}: {source}")]
    Files { directory: PathBuf, source: io::Error },
    #[error("cannot read the audit log: {0}")]
    Audit(io::Error),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("{path:?} is no Ed25519 key; remove it, and the next receipt makes another")]
    Key { path: PathBuf },
}

impl ReceiptError {
    /// The log has no such run, or none at all.
    pub fn no_run(context: &impl ToString, run: Option<u64>) -> Self {
        let run = run.map(|run| format!(" {run}")).unwrap_or_default();
        Self::NoRun { context: context.to_string(), run }
    }
}

/// Why a receipt is not to be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("it is no receipt: {0}")]
    Form(String),
    #[error("{0:?} is no public key: write the one that `host-bridge receipt key` prints")]
    Key(String),
    #[error("it is signed with another key, {0}")]
    OtherKey(String),
    #[error("its signature is not of what it says: it was changed, or never signed")]
    Signature,
}

impl Receipt {
    pub(crate) fn sign(statement: Statement, key: &Ed25519KeyPair) -> Self {
        let signature = URL_SAFE_NO_PAD.encode(key.sign(&signed_bytes(&statement)));
        Self { statement, key: public_key(key), signature }
    }

    /// Reads a receipt, and compares its signature with a public key. It asks nobody.
    pub fn verify(text: &[u8], key: &str) -> Result<Self, Invalid> {
        let receipt: Self =
            serde_json::from_slice(text).map_err(|error| Invalid::Form(error.to_string()))?;
        let wrong = || Invalid::Key(key.to_owned());
        let bytes = URL_SAFE_NO_PAD.decode(key).map_err(|_| wrong())?;
        if bytes.len() != limits::PUBLIC_KEY_BYTES {
            return Err(wrong());
        }
        if receipt.key != key {
            return Err(Invalid::OtherKey(receipt.key));
        }
        let signature =
            URL_SAFE_NO_PAD.decode(&receipt.signature).map_err(|_| Invalid::Signature)?;
        let verified = UnparsedPublicKey::new(&ED25519, bytes)
            .verify(&signed_bytes(&receipt.statement), &signature);
        verified.map_err(|_| Invalid::Signature)?;
        Ok(receipt)
    }

    /// The digest that the next receipt has of this one.
    pub fn digest(&self) -> String {
        hex::digits(digest(&SHA256, self.line().as_bytes()).as_ref())
    }

    /// The receipt as it is kept.
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).expect("a receipt is JSON")
    }
}

/// The record of a new receipt in the audit log, whose chain then holds it too.
fn issued_entry(receipt: &Receipt) -> Entry {
    let statement = &receipt.statement;
    let mut entry = Entry::of_bridge("receipt.issued");
    if let Some(session) = &statement.session {
        entry = entry.fact("session", session.clone());
    }
    if let Some(run) = &statement.run {
        entry = entry.fact("context", run.context.clone()).fact("run", run.run);
    }
    let entry = entry.fact("receipt", receipt.digest()).fact("seq", statement.seq);
    let Subject { namespace, name, id, .. } = statement.sandbox.clone();
    Entry { namespace: Some(namespace), sandbox: Some(name), id: Some(id), ..entry }
}

fn signed_bytes(statement: &Statement) -> Vec<u8> {
    let mut bytes = PURPOSE.to_vec();
    bytes.extend(serde_json::to_vec(statement).expect("a statement is JSON"));
    bytes
}

pub(crate) fn public_key(key: &Ed25519KeyPair) -> String {
    URL_SAFE_NO_PAD.encode(key.public_key().as_ref())
}

#[cfg(test)]
mod tests;
