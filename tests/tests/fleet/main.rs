//! Bridges of one fleet over a real NATS server, on this machine.

mod dev;
mod doors;
mod drain;
mod durable;
mod events;
mod gateway;
mod held;
mod lists;
mod logs;
mod names;
mod nodes;
mod quotas;
mod routes;
mod safety;
mod ssh;
mod templates;
mod tls;
