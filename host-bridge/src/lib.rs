//! The host's half of Burrow, as a library: `main.rs` is a thin binary over it.

#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod control;
pub mod guest;
pub mod limits;
pub mod link;
pub mod machine;
pub mod sandbox;
pub mod terminal;
