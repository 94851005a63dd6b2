"""Runs one suite of a client: `suite.py DIRECTORY MODULE`. Each function of the module is a test; what it returns
is awaited if it can be. Which modules there are is said by the tests below `tests/tests/clients/`."""

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
sys.path.insert(0, sys.argv[1])
module = importlib.import_module(sys.argv[2])
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
        # Where a page says which calls a test shows, it must make them.
        calls = sys.modules.get("calls")
        missing = calls.uncalled(sys.argv[2], name) if calls else []
        assert not missing, f"the page says that this test shows {missing}, which it does not call"
        print(f"ok {name} {time.monotonic() - begun:.2f} s")
    except Exception:
        failed += 1
        print(f"FAILED {name}\n{traceback.format_exc()}")
sys.stdout.flush()
# A client may leave threads behind that do not end by themselves.
os._exit(failed > 0)
