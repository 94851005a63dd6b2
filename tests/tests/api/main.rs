//! The server's HTTP API and its JSON-RPC, against a real server.

mod api_calls;
mod api_contexts;
mod api_contract;
mod api_core;
mod api_exec;
mod api_files;
mod api_keys;
mod api_logs;
mod api_ports;
mod api_previews;
mod api_rpc;
mod api_sessions;
mod api_sleep;
mod dist_metrics;
mod generators;
mod refusals;
