//! Services on top of sandboxes: notebooks, artifacts, apps, port forwards, images built by recipes, the stream
//! of events and its webhooks, the timeline of a sandbox, and the store that keeps rows.
//!
//! The doors and the daemon call this. It knows no request and no answer of any of them.

#![forbid(unsafe_code)]

pub mod app;
pub mod artifact;
pub mod build;
pub mod events;
pub mod forwards;
pub mod notebook;
mod refusal;
pub mod store;
pub mod timeline;
pub mod webhooks;
