//! The progress of a pull, for display. It is a [`tokio::sync::watch`] value, so that a slow reader never
//! delays the download.

use tokio::sync::watch;

use super::manifest::Layer;
use crate::digest::Digest;

/// The state of a pull at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The origin that is asked.
    pub source: String,
    /// Empty until the manifest is there. A layer that the image has twice is in it once.
    pub layers: Vec<LayerProgress>,
    /// Why something is being tried again, the last time that it was.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerProgress {
    pub digest: Digest,
    /// Bytes that are here, from earlier attempts too.
    pub bytes: u64,
    pub size: u64,
    pub is_whole: bool,
}

impl Progress {
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }

    pub fn size(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).sum()
    }
}

/// Tells it.
#[derive(Clone, Copy)]
pub(super) struct ProgressSender<'a>(pub(super) &'a watch::Sender<Progress>);

impl ProgressSender<'_> {
    pub(super) fn source(self, source: String) {
        self.0.send_modify(|progress| *progress = Progress { source, ..Progress::default() });
    }

    pub(super) fn layers(self, layers: &[Layer]) {
        let waiting = |layer: &Layer| LayerProgress {
            digest: layer.digest,
            bytes: 0,
            size: layer.bytes,
            is_whole: false,
        };
        self.0.send_modify(|progress| progress.layers = layers.iter().map(waiting).collect());
    }

    pub(super) fn trouble(self, trouble: String) {
        self.0.send_modify(|progress| progress.trouble = Some(trouble));
    }

    pub(super) fn bytes(self, digest: Digest, bytes: u64) {
        self.layer(digest, |layer| layer.bytes = bytes);
    }

    pub(super) fn whole(self, digest: Digest) {
        self.layer(digest, |layer| (layer.bytes, layer.is_whole) = (layer.size, true));
    }

    fn layer(self, digest: Digest, change: impl FnOnce(&mut LayerProgress)) {
        self.0.send_if_modified(|progress| {
            let layer = progress.layers.iter_mut().find(|layer| layer.digest == digest);
            layer.map(change).is_some()
        });
    }
}
