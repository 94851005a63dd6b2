"""Prints the median time, in microseconds, of `print(1)` in a kernel of Jupyter's server, by its WebSocket, from
the request to the kernel's being idle again."""

import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

import websocket

TOKEN = "bench"

runtime = tempfile.TemporaryDirectory()
server = subprocess.Popen(
    [
        sys.executable,
        "-m",
        "jupyter_server",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        f"--IdentityProvider.token={TOKEN}",
    ],
    env=dict(os.environ, JUPYTER_RUNTIME_DIR=runtime.name),
    cwd=runtime.name,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)


def address():
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in glob.glob(runtime.name + "/jpserver-*.json"):
            try:
                with open(path) as file:
                    return "127.0.0.1:%d" % json.load(file)["port"]
            except ValueError:
                pass
        time.sleep(0.1)
    raise SystemExit("the server does not say where it listens")


def run(socket):
    output, asked = "", uuid.uuid4().hex
    header = {"msg_id": asked, "msg_type": "execute_request", "username": "", "session": asked, "version": "5.3"}
    content = {"code": "print(1)", "silent": False, "store_history": True, "allow_stdin": False}
    message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    socket.send(json.dumps(message))
    while True:
        message = json.loads(socket.recv())
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "stream":
            output += message["content"]["text"]
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            assert output == "1\n", output
            return


try:
    place = address()
    request = urllib.request.Request(
        f"http://{place}/api/kernels", b'{"name": "python3"}', {"authorization": f"token {TOKEN}"}
    )
    with urllib.request.urlopen(request) as answer:
        kernel = json.load(answer)["id"]
    socket = websocket.create_connection(f"ws://{place}/api/kernels/{kernel}/channels?token={TOKEN}", timeout=60)
    run(socket)
    times = []
    for number in range(int(sys.argv[1])):
        begun = time.perf_counter()
        run(socket)
        times.append(time.perf_counter() - begun)
    print(round(statistics.median(times) * 1e6))
    socket.close()
finally:
    server.terminate()
    server.wait()
