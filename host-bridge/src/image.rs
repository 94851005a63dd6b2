//! Images: what sandboxes have as their root, by names that people know.
//!
//! ```text
//!   reference ─▶ registry ─▶ blobs          what an image is called; where it comes from; its bytes,
//!                  │           │            each once, by their digests
//!                  └─ digest ──┘
//! ```
//!
//! What comes from outside is hostile here too: a registry's every length, name and number is
//! bounded, and no byte is used before its digest was seen to be right.

pub mod blobs;
pub mod digest;
pub mod limits;
pub mod reference;
pub mod registry;
