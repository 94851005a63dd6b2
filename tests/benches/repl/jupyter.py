"""Prints the median time, in microseconds, of `print(1)` in a Jupyter kernel, from the request to the
kernel's being idle again."""

import statistics
import sys
import time

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")


def run():
    output = ""
    asked = client.execute("print(1)")
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "stream":
            output += message["content"]["text"]
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            assert output == "1\n", output
            return


times = []
for number in range(int(sys.argv[1])):
    begun = time.perf_counter()
    run()
    times.append(time.perf_counter() - begun)
print(round(statistics.median(times) * 1e6))
client.stop_channels()
manager.shutdown_kernel(now=True)
