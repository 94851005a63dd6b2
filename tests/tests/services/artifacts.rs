//! Artifacts: kept on the host, named in results, fetched, listed and removed, whatever the guest
//! does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod content;
mod files;
mod hostile;
mod kept;
mod rendered;
mod scene;
mod shown;
