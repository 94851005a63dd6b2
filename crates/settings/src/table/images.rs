//! `[images]`: the one option among the names of images.

use super::{ConfigOption, IMAGES, IMAGES_ABOUT, Section, put};
use crate::shown::quote_paths;

pub const SECTION: Section = Section {
    name: IMAGES,
    about: IMAGES_ABOUT,
    options: &[ConfigOption {
        key: "ca",
        values: "a list of paths",
        about: "No name, but files of certificates (PEM) that are trusted in addition to the \
                host's own when an image is pulled, from whichever registry; `ca` of \
                `[registries.\"HOST\"]` is for one.",
        set: |settings, given| put(&mut settings.images_ca, given.paths()),
        show: |settings| quote_paths(&settings.images_ca),
    }],
};
