//! Jupyter's wire: cells over raw WebSockets in both framings, clients that do not read, and Jupyter's own
//! server and clients.

mod cells;
mod floods;
mod gateway;
mod wire;
