//! Registries, ports, names of other namespaces, and what the host's root shows.

mod host_root;
mod images;
mod paths;
mod ports;
mod registries;
mod requests;
