//! MCP as agents' clients speak it: on lines with the program that they start, and over HTTP with a
//! key.

#[path = "mcp/apps.rs"]
mod apps;
#[path = "mcp/clients.rs"]
mod clients;
#[path = "mcp/lines.rs"]
mod lines;
#[path = "mcp/notebooks.rs"]
mod notebooks;
#[path = "mcp/resources.rs"]
mod resources;
#[path = "mcp/tools.rs"]
mod tools;
#[path = "mcp/web.rs"]
mod web;
