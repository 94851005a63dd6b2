//! Clients that others wrote or that users install: MCP's, the published SDKs, our own clients, the console.

mod adapters;
mod console;
mod daytona;
mod e2b;
mod environment;
mod jupyter;
mod mcp;
mod msb;
mod python_client;
mod sdk;
mod ssh;
mod ssh_editors;
mod ssh_files;
mod ssh_load;
mod ssh_refused;
mod typescript_client;
