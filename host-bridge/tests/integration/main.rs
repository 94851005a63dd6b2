//! The parts of the bridge with a real agent on the process machine: the library, the registry and its
//! times to live, the pool, keys, and the monitors of virtual machines against a stand-in.
//!
//! Tests of what users see are in the crate `tests`.

#[macro_use]
mod place;

mod expiry;
mod keys;
mod library;
mod monitors;
mod pool;
mod process_machine;
mod sleep;
