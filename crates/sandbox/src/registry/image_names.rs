//! What the images of this host are called beyond it: whole names, and digests.

use std::collections::BTreeSet;

use super::Registry;
use crate::Spec;
use image::reference::Reference;
use image::{Pull, Puller};

impl Registry {
    /// The names and digests of the images here, at most so many. Blocks.
    pub fn image_names(&self, count_max: usize) -> BTreeSet<String> {
        let listed = self.images().and_then(|images| images.list().ok()).unwrap_or_default();
        let all = listed.into_iter().flat_map(|listed| {
            let names = listed.names.into_iter().map(|record| record.name);
            names.chain([listed.image.digest.to_string()])
        });
        all.take(count_max).collect()
    }

    /// An image by its whole name, where a text is one. The root of a directory has none.
    pub fn image_name(text: &str) -> Option<String> {
        if text.starts_with('/') {
            return None;
        }
        if text.starts_with("sha256:") {
            return Some(text.to_owned());
        }
        text.parse::<Reference>().ok().map(|name| name.to_string())
    }

    /// The image of the store that a sandbox has, by its whole name. One of the kit is of every host that has a kit.
    pub fn stored_image(&self, spec: &Spec) -> Option<String> {
        self.wanted_image(spec)?;
        spec.image.as_deref().and_then(Self::image_name)
    }

    /// Whether a sandbox can be made only where its image is: nobody pulls it, or its name is a digest, as that of what was
    /// built here is.
    pub fn needs_image(&self, spec: &Spec) -> bool {
        let usual = self.puller().map(Puller::usual).unwrap_or_default();
        let is_digest = |image: &String| image.starts_with("sha256:");
        let pull = spec.pull.unwrap_or(usual);
        spec.image.as_ref().is_some_and(|image| pull == Pull::Never || is_digest(image))
    }

    /// Whether an image is here, so that sandboxes of it start without a pull.
    pub fn has_image(&self, text: &str) -> bool {
        text.starts_with('/') || self.images().is_some_and(|images| images.find(text).is_ok())
    }
}
