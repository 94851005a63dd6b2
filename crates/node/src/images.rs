//! Which images this node has, as it tells the others: what nobody may pull is placed where it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use fleet::event::Call;

use crate::limits::{DESCRIBE_LOOK_PAUSE, DESCRIBE_MAX, IMAGES_DESCRIBED_MAX, IMAGES_LOOK_PAUSE};
use crate::{Node, lock};

impl Node {
    /// Tells the others about images that have come and gone, from now on.
    pub(crate) async fn keep_images_described(&self) {
        let weak = Arc::downgrade(&self.0);
        loop {
            let Some(inner) = weak.upgrade() else { return };
            Self(inner).describe_images().await;
            tokio::time::sleep(IMAGES_LOOK_PAUSE).await;
        }
    }

    /// The images here, by their whole names and digests.
    async fn own_images(&self) -> BTreeSet<String> {
        let Some(registry) = self.0.registry.get().cloned() else { return BTreeSet::new() };
        let reading =
            tokio::task::spawn_blocking(move || registry.image_names(IMAGES_DESCRIBED_MAX));
        reading.await.unwrap_or_default()
    }

    /// Tells the others which images are here, if they know otherwise, and waits until that can be read.
    pub async fn describe_images(&self) {
        let images = self.own_images().await;
        {
            let mut record = lock(&self.0.record);
            if record.images == images {
                return;
            }
            record.images.clone_from(&images);
        }
        let Some(handle) = self.handle() else { return };
        handle.call(Call::Describe { images: images.clone() }).await;
        let deadline = Instant::now() + DESCRIBE_MAX;
        while Instant::now() < deadline {
            let own = self.look_around().await.get(&self.0.id).cloned();
            if own.is_some_and(|own| own.images == images) {
                return;
            }
            tokio::time::sleep(DESCRIBE_LOOK_PAUSE).await;
        }
    }
}
