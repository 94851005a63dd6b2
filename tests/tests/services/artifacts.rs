//! What runs leave: kept on the host, named in their results, fetched, listed and removed, whatever
//! the guest makes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod content;
mod files;
mod hostile;
mod kept;
mod rendered;
mod scene;
mod shown;
