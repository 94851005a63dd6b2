//! Writes audit records for image commands, one per affected image. The daemon does not see these
//! commands, so they are recorded here, as `run` records itself.

use std::time::Instant;

use anyhow::{Error, Result};

use crate::context::Context;
use access::audit::{Audit, Entry, Outcome};
use control::EgressSink;
use image::digest::Digest;
use image::save::SaveError;
use image::{Image, ImageError};
use sandbox::SandboxRef;

/// The maximum number of digests in one record; the count is always complete.
const DIGESTS_MAX: usize = 32;

/// The audit log for one `image` command; none by default. Clones share it.
#[derive(Clone, Default)]
pub struct Recorder(Audit);

impl Recorder {
    /// Opens the log before anything is done, because unrecorded operations may have to be refused.
    pub fn open(context: &Context) -> Result<Self> {
        let audit = context.audit()?;
        audit.admit()?;
        Ok(Self(audit))
    }

    /// Begins the record of an operation on one image or on all.
    pub fn begin(&self, operation: &str) -> AuditedAction {
        let entry = control::entry(operation);
        AuditedAction { audit: self.0.clone(), entry, began: Instant::now() }
    }

    /// Takes the decisions about what a build's commands reach, in sandboxes of this name.
    pub fn egress(&self, which: SandboxRef) -> EgressSink {
        control::egress_recorder(self.0.clone(), which)
    }

    /// Writes the records so far.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

/// An operation that is recorded when it ends.
#[derive(Clone)]
pub struct AuditedAction {
    audit: Audit,
    entry: Entry,
    began: Instant,
}

impl AuditedAction {
    #[must_use]
    pub fn image(mut self, name: impl Into<String>) -> Self {
        self.entry.image = Some(name.into());
        self
    }

    #[must_use]
    pub fn digest(mut self, digest: &Digest) -> Self {
        self.entry.digest = Some(digest.to_string());
        self
    }

    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.entry = self.entry.fact(name, value);
        self
    }

    /// Adds the first digests of the affected images.
    #[must_use]
    pub fn digests(self, digests: &[Digest]) -> Self {
        let first: Vec<_> = digests.iter().take(DIGESTS_MAX).map(ToString::to_string).collect();
        self.fact("images", digests.len()).fact("digests", first)
    }

    pub fn done(self) {
        self.write(Outcome::Ok);
    }

    /// Records the end, with the resulting image.
    pub fn ended(self, result: &Result<Image>) {
        match result {
            Ok(image) => self.digest(&image.digest).done(),
            Err(error) => self.failed(error),
        }
    }

    /// Passes the result on, and records an error.
    pub fn tried<T, E: Into<Error>>(&self, result: Result<T, E>) -> Result<T> {
        result.map_err(|error| {
            let error = error.into();
            self.clone().failed(&error);
            error
        })
    }

    pub fn failed(self, error: &Error) {
        let outcome = outcome(error);
        self.fact("why", format!("{error:#}")).write(outcome);
    }

    /// Records that a signal interrupted it.
    pub fn broken_off(self) {
        self.fact("why", "it was interrupted").write(Outcome::Failed);
    }

    fn write(mut self, outcome: Outcome) {
        self.entry.outcome = outcome;
        self.entry.duration_us = u64::try_from(self.began.elapsed().as_micros()).ok();
        self.audit.record(self.entry);
    }
}

/// Invalid requests were never started, so they are recorded as refused.
fn outcome(error: &Error) -> Outcome {
    let of_saving = error.downcast_ref().and_then(|error| match error {
        SaveError::Image(error) => Some(error),
        _ => None,
    });
    match error.downcast_ref().or(of_saving).map(ImageError::inner) {
        Some(
            ImageError::NotFound { .. }
            | ImageError::Ambiguous { .. }
            | ImageError::Name(_)
            | ImageError::InUse { .. }
            | ImageError::Busy
            | ImageError::NotAllowed { .. }
            | ImageError::TooManyNames { .. },
        ) => Outcome::Refused,
        _ => Outcome::Failed,
    }
}
