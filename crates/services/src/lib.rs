//! Services on top of sandboxes: notebooks, artifacts, apps, port forwards, images built by recipes, and the
//! store that keeps their rows.
//!
//! The doors and the daemon call this. It knows no request and no answer of any of them.

#![forbid(unsafe_code)]

pub mod app;
pub mod artifact;
pub mod build;
pub mod forwards;
pub mod notebook;
mod refusal;
pub mod store;
