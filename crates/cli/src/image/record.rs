//! Writes audit records for image commands, one per affected image. The daemon does not see these
//! commands, so they are recorded here, as `run` records itself.

use std::time::Instant;

use anyhow::{Error, Result};

use crate::context::Context;
use access::audit::{Audit, Entry, Outcome};
use image::digest::Digest;
use image::save::SaveError;
use image::{Image, ImageError};

/// Digests in the record of something that is about any number of images; the count is whole.
const DIGESTS_MAX: usize = 32;

/// The log, for one use of `image`; none by default. Clones are the same.
#[derive(Clone, Default)]
pub struct Recorder(Audit);

impl Recorder {
    /// Opened before anything is done: it may be that nothing is to be done that is not recorded.
    pub fn open(context: &Context) -> Result<Self> {
        let audit = context.audit()?;
        audit.admit()?;
        Ok(Self(audit))
    }

    /// Something that is done to an image, or to all.
    pub fn begin(&self, operation: &str) -> AuditedAction {
        let entry = control::entry(operation);
        AuditedAction { audit: self.0.clone(), entry, began: Instant::now() }
    }

    /// Writes what was recorded until now.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

/// Something under way, of which there is a record when it has ended.
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

    /// The first digests of those that it has come to.
    #[must_use]
    pub fn digests(self, digests: &[Digest]) -> Self {
        let first: Vec<_> = digests.iter().take(DIGESTS_MAX).map(ToString::to_string).collect();
        self.fact("images", digests.len()).fact("digests", first)
    }

    pub fn done(self) {
        self.write(Outcome::Ok);
    }

    /// Its end, and the image that has come of it.
    pub fn ended(self, result: &Result<Image>) {
        match result {
            Ok(image) => self.digest(&image.digest).done(),
            Err(error) => self.failed(error),
        }
    }

    /// What has come of it, with a record if that is nothing.
    pub fn tried<T>(&self, result: Result<T, ImageError>) -> Result<T> {
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

    /// A signal has broken it off.
    pub fn broken_off(self) {
        self.fact("why", "it was interrupted").write(Outcome::Failed);
    }

    fn write(mut self, outcome: Outcome) {
        self.entry.outcome = outcome;
        self.entry.duration_us = u64::try_from(self.began.elapsed().as_micros()).ok();
        self.audit.record(self.entry);
    }
}

/// What is wrong with what was asked for was never begun.
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
