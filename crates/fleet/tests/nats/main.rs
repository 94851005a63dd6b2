//! The transport and members on a real NATS server.

mod chaos;
#[path = "../simulation/checker.rs"]
mod checker;
mod cluster;
mod documents;
mod logs;
mod members;
mod permissions;
mod server;
mod store;
