//! Debian's formats: indexes, versions, dependencies and package files.
//!
//! The lock is resolved with these, and packages are unpacked with them. Scripts of packages are
//! never run, and nothing is asked of dpkg or apt.

pub mod ar;
pub mod control;
pub mod decompress;
pub mod package;
pub mod relation;
pub mod release;
pub mod resolve;
pub mod version;
