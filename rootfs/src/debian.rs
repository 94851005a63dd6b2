//! Debian's formats: indexes, versions, dependencies and package files.
//!
//! These resolve the lock and unpack packages. Scripts of packages are never run, and dpkg and apt
//! are not used.

pub mod ar;
pub mod control;
pub mod decompress;
pub mod package;
pub mod relation;
pub mod release;
pub mod resolve;
pub mod version;
