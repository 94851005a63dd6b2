//! Clients that others wrote or that users install: MCP's, the published SDKs, the Python client.

mod mcp;
mod python_client;
mod sdk;
