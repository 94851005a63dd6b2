"""A client of the official Python SDK, as its documentation has it: opens a session at URL with the key KEY,
uses a tool, and ends. What the SDK logs is on stderr.

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


asyncio.run(main())
