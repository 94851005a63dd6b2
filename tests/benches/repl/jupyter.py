"""Prints the median time, in microseconds, of code in a Jupyter kernel, from the request to the kernel's
being idle again. Arguments: how often, the code, and how many characters it prints."""

import statistics
import sys
import time

from jupyter_client.manager import start_new_kernel

runs, code, printed = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
manager, client = start_new_kernel(kernel_name="python3")


def run():
    output = 0
    asked = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "stream":
            output += len(message["content"]["text"])
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            assert output == printed, output
            return


times = []
for number in range(runs):
    begun = time.perf_counter()
    run()
    times.append(time.perf_counter() - begun)
print(round(statistics.median(times) * 1e6))
client.stop_channels()
manager.shutdown_kernel(now=True)
