//! Work of a build that waits for disks and locks, off the event loop.

use image::ImageError;

use super::StepError;

/// Runs something that waits for disks and locks on a blocking thread.
pub(super) async fn block<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ImageError::Busy.into()))
}
