"""Runs one suite: `run.py MODULE`. Each function of the module is a test; what it returns is awaited if it
can be. Which modules there are is said by `tests/tests/clients/e2b.rs`."""

import asyncio
import faulthandler
import importlib
import inspect
import os
import sys
import time
import traceback

# A test that hangs says where.
faulthandler.dump_traceback_later(float(os.environ["BURROW_TEST_SECONDS_MAX"]), exit=True)
module = importlib.import_module(sys.argv[1])
failed = 0
for name, test in list(vars(module).items()):
    if name.startswith("_") or not inspect.isfunction(test) or test.__module__ != module.__name__:
        continue
    begun = time.monotonic()
    try:
        if inspect.iscoroutinefunction(test):
            asyncio.run(test())
        else:
            test()
        print(f"ok {name} {time.monotonic() - begun:.2f} s")
    except Exception:
        failed += 1
        print(f"FAILED {name}\n{traceback.format_exc()}")
sys.exit(failed > 0)
