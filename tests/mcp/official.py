"""A client of the official Python SDK, as its documentation has it: opens a session at URL with the key KEY,
uses tools, and ends. What the SDK logs is on stderr.

    official.py URL KEY
"""

import asyncio
import logging
import sys

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL, KEY = sys.argv[1:]
logging.basicConfig(level=logging.WARNING)


async def main():
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client:
        async with streamable_http_client(URL, http_client=client) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                listed = await session.list_tools()
                ran = await session.call_tool("execute", {"code": "6 * 7"})
                print(len(listed.tools), ran.structured_content["value"])
                await forks(session)


async def forks(session):
    """Forks, tries and drops: the SDK compares each result with the schema of its tool."""

    async def call(tool, **arguments):
        result = await session.call_tool(tool, arguments)
        assert not result.is_error, result
        return result.structured_content

    await call("sandbox_create", name="work")
    tried = await call("shell_execute", command="echo 1 > /tmp/one", sandbox="work", **{"try": "drop"})
    print(tried["changes"][0]["change"], tried["changes"][0]["path"])
    made = await call("sandbox_create", fork_of="work", name="copy")
    print(made["record"]["ancestors"][0]["name"], made["report"]["memory"])
    listed = await call("sandbox_list", kind="templates")
    print(listed["sandboxes"], listed.get("templates", []))
    for name in ("work", "copy"):
        await call("sandbox_remove", sandbox=name)


asyncio.run(main())
