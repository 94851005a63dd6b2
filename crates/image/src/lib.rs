//! Images: the root file systems of sandboxes, under the names that people use.
//!
//! ```text
//!   reference ─▶ registry ─▶ blobs          what an image is called; where it comes from; its bytes,
//!                  │           │            each once, by their digests
//!                  └─ digest ──┘            │
//!                               store ─▶ layer ─▶ compose ─▶ a root, or a disk of it
//!   files of this host ─▶ import ─┘      unpacked once     put on top of each other
//!   archives ◀─ save ◀─ blobs
//! ```
//!
//! `sandbox` asks for roots, `services` builds on them, and the doors list them. It starts nothing. Input from outside is
//! hostile here, too: every length, name and number from a registry is
//! bounded, and no byte is used before its digest was verified.

#![forbid(unsafe_code)]

pub mod blobs;
pub mod compose;
pub mod copy;
pub mod digest;
pub mod dockerfile;
pub mod document;
mod import;
pub mod layer;
pub mod limits;
pub mod policy;
pub mod pull;
pub mod puller;
pub mod reference;
pub mod registry;
pub mod save;
pub mod store;

pub use policy::{Policy, PolicyError};
pub use puller::Puller;
pub use store::{Image, ImageError, Images, Lease};

pub use pull::{Pull, UnknownPull};

#[cfg(test)]
mod tests;
