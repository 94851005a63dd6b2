//! Pulls from registries that a test plays: things that real ones rarely do, and hostile ones would.

mod auth;
mod cuts;
mod hostile;
mod play;
mod way;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::*;
use play::Server;

static SCENES: AtomicU32 = AtomicU32::new(0);

/// Blobs of one test's own, with little patience.
struct Scene {
    root: PathBuf,
    blobs: Blobs,
    options: Options,
    progress: watch::Sender<Progress>,
}

impl Scene {
    fn new() -> Self {
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("burrow-pull-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let blobs = Blobs::open(&root).unwrap();
        let mut options =
            Options { platform: "linux/amd64".parse().unwrap(), ..Options::default() };
        options.times.retry_pause = Duration::from_millis(5);
        Self { root, blobs, options, progress: watch::Sender::default() }
    }

    async fn pull(&self, server: &Server) -> Result<PulledImage, PullError> {
        let reference = server.name("app:v1").parse().unwrap();
        pull(&reference, &self.options, &self.blobs, &self.progress).await
    }

    /// Configures the registry, as an operator with a section for it.
    fn names(&mut self, server: &Server) {
        let host = format!("127.0.0.1:{}", server.port).parse().unwrap();
        self.options.registries.insert(host, Registry::default());
    }

    fn partials(&self) -> usize {
        fs::read_dir(self.root.join("partial")).unwrap().count()
    }

    fn credentials(&mut self, content: &str) {
        let path = self.root.join("auth.json");
        fs::write(&path, content).unwrap();
        self.options.auth_files = vec![path];
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
