//! Images: built, committed, pulled from a registry, pinned, saved and removed.

mod image_build;
mod image_commits;
mod image_pins;
mod image_pulls;
mod image_save;
mod images;
mod packages;
mod registry;
