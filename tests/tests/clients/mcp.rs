//! MCP as agents' clients speak it: on lines with the program that they start, and over HTTP with a
//! key.

mod apps;
mod clients;
mod forks;
mod lines;
mod notebooks;
mod official;
mod resources;
mod tools;
mod web;
