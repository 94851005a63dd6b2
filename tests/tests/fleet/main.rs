//! Bridges of one fleet over a real NATS server, on this machine.

mod dev;
mod names;
mod nodes;
mod routes;
mod safety;
