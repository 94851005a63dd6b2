//! What every part of the bridge needs from its host: paths and their locks, secrets, trusted
//! certificates, outgoing connections, points in time, and small formats.
//!
//! Nearly all other crates of the bridge call this one. It knows no sandbox, no machine and no protocol, and imports
//! none of the other crates.

#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
pub mod byte_path;
pub mod dial;
pub mod excerpt;
pub mod helper;
pub mod hex;
pub mod id;
pub mod instant;
pub mod journal;
pub mod lock;
pub mod memory;
pub mod mime;
pub mod names;
pub mod notify;
pub mod paths;
pub mod percent;
pub mod places;
pub mod poster;
pub mod room;
pub mod secret;
pub mod similar;
pub mod sparse;
pub mod tls;
pub mod together;
pub mod trust;
pub mod units;
