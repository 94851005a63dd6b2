//! The host's half of Burrow, as a library: `main.rs` is a thin binary over it.
//!
//! Programs that want sandboxes in their own process begin with [`bridge::Bridge`], which joins the
//! parts below it: [`config::Paths`] says where things are kept, [`sandbox::Registry`] owns the
//! sandboxes, [`guest::Guest`] speaks to the agent in one. `examples/twenty_lines.rs` is a whole
//! program. Those that would rather ask a server use its HTTP API, of which [`api`] is the home.

#![forbid(unsafe_code)]

pub mod api;
pub mod app;
pub mod artifact;
pub mod audit;
pub mod bridge;
pub mod build;
mod byte_path;
pub mod cli;
pub mod config;
pub mod control;
pub mod dial;
pub mod egress;
pub mod forwards;
pub mod guest;
mod hex;
pub mod image;
pub mod instant;
pub mod keys;
pub mod limits;
pub mod link;
pub mod machine;
pub mod mime;
pub mod notebook;
pub mod notify;
pub mod sandbox;
pub mod secret;
pub mod settings;
pub mod similar;
pub mod store;
pub mod terminal;
pub mod trust;
pub mod workspace;
