//! Bridges of one fleet over a real NATS server, on this machine.

mod chaos;
mod clocks;
mod control_plane;
mod cut_off;
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
mod placing;
mod quotas;
mod replays;
mod returning;
mod routes;
mod safety;
mod ssh;
mod templates;
mod tls;
mod upgrade;
