//! Blobs of one test's own, and pulling into them.

use std::path::Path;
use std::time::Duration;

use image::blobs::Blobs;
use image::reference::Reference;
use image::registry::{Options, Progress, PullError, PulledImage, pull};
use tempfile::TempDir;
use tokio::sync::watch;

pub struct Scene {
    dir: TempDir,
    pub blobs: Blobs,
    pub options: Options,
    pub progress: watch::Sender<Progress>,
}

impl Scene {
    pub fn new() -> Self {
        let dir = TempDir::with_prefix("burrow-pull-").expect("a directory");
        let blobs = Blobs::open(&dir.path().join("blobs")).expect("a store");
        let mut options =
            Options { platform: "linux/amd64".parse().expect("a platform"), ..Options::default() };
        options.times.retry_pause = Duration::from_millis(20);
        Self { dir, blobs, options, progress: watch::Sender::default() }
    }

    pub async fn pull(&self, name: &str) -> Result<PulledImage, PullError> {
        let reference: Reference = name.parse().expect("a name");
        pull(&reference, &self.options, &self.blobs, &self.progress).await
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Contents that are begun and not whole.
    pub fn partials(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("blobs/partial")).expect("a directory").count()
    }
}
