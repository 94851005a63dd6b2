"""Runs one test: `run.py MODULE TEST`. What a test returns is awaited if it can be; it fails by
raising. Which tests there are is said by `tests/tests/clients/sdk.rs`."""

import asyncio
import faulthandler
import importlib
import inspect
import os
import sys

# A test that hangs says where.
faulthandler.dump_traceback_later(float(os.environ["BURROW_TEST_SECONDS_MAX"]), exit=True)
module, name = sys.argv[1:]
result = getattr(importlib.import_module(module), name)()
if inspect.isawaitable(result):

    async def test():
        await result

    asyncio.run(test())
