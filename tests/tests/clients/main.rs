//! Clients that others wrote or that users install: MCP's, the published SDKs, our own clients.

mod e2b;
mod environment;
mod jupyter;
mod mcp;
mod python_client;
mod sdk;
mod typescript_client;
