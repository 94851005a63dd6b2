//! What runs leave: kept on the host, named in their results, fetched, listed and removed, whatever
//! the guest makes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

#[path = "artifacts/content.rs"]
mod content;
#[path = "artifacts/files.rs"]
mod files;
#[path = "artifacts/hostile.rs"]
mod hostile;
#[path = "artifacts/kept.rs"]
mod kept;
#[path = "artifacts/rendered.rs"]
mod rendered;
#[path = "artifacts/scene.rs"]
mod scene;
#[path = "artifacts/shown.rs"]
mod shown;
