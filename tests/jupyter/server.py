"""A cell through Jupyter's own server with --gateway-url, as JupyterLab sends it, and the kernel's life over REST."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import uuid

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

TOKEN = "of-the-test"
# More than it takes on a busy machine.
SECONDS_MAX = 60


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Client:
    def __init__(self, port):
        self.place = "127.0.0.1:%d" % port
        self.headers = {"Authorization": "token " + TOKEN}

    async def ask(self, method, path, value=None):
        body = json.dumps(value or {}) if method == "POST" else None
        url = "http://" + self.place + path
        request = HTTPRequest(url, method, self.headers, body, request_timeout=30)
        answer = await AsyncHTTPClient().fetch(request)
        return json.loads(answer.body) if answer.body else None

    async def ready(self, process):
        for _ in range(600):
            assert process.poll() is None, "Jupyter's server has ended"
            try:
                return await self.ask("GET", "/api/kernelspecs")
            except (OSError, HTTPClientError):
                await asyncio.sleep(0.05)
        raise AssertionError("Jupyter's server does not answer")

    async def channels(self, kernel):
        url = "ws://%s/api/kernels/%s/channels?session_id=s" % (self.place, kernel)
        return await websocket_connect(HTTPRequest(url, headers=self.headers))


async def run(channel, code):
    name = uuid.uuid4().hex
    header = {"msg_id": name, "msg_type": "execute_request", "session": "s", "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    await channel.write_message(json.dumps({
        "channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content, "buffers": [],
    }))
    heard = []
    states = set()
    while not {"idle", "reply"} <= states:
        message = json.loads(await asyncio.wait_for(channel.read_message(), 20))
        if message["parent_header"].get("msg_id") != name:
            continue
        heard.append(message)
        states.add(message["content"].get("execution_state"))
        if message["msg_type"] == "execute_reply":
            states.add("reply")
    return heard


def contents(heard, kind):
    return [message["content"] for message in heard if message["msg_type"] == kind]


async def follow(client, process):
    specs = await client.ready(process)
    assert set(specs["kernelspecs"]) == {"python3", "javascript", "bash"}, specs
    kernel = (await client.ask("POST", "/api/kernels", {"name": "python3"}))["id"]
    channel = await client.channels(kernel)
    heard = await run(channel, "x = 6\nprint('through')\nx * 7")
    assert contents(heard, "stream")[0]["text"] == "through\n", heard
    assert contents(heard, "execute_result")[0]["data"]["text/plain"] == "42", heard

    sleeping = asyncio.ensure_future(run(channel, "import time\ntime.sleep(60)"))
    # A list of kernels is asked of the gateway; one kernel is not.
    while (await client.ask("GET", "/api/kernels"))[0]["execution_state"] != "busy":
        await asyncio.sleep(0.05)
    await client.ask("POST", "/api/kernels/%s/interrupt" % kernel)
    assert contents(await sleeping, "execute_reply")[0]["ename"] == "KeyboardInterrupt"

    await client.ask("POST", "/api/kernels/%s/restart" % kernel)
    channel = await client.channels(kernel)
    heard = await run(channel, "x")
    assert contents(heard, "execute_reply")[0]["ename"] == "NameError", heard
    await client.ask("DELETE", "/api/kernels/" + kernel)
    assert await client.ask("GET", "/api/kernels") == []


def main():
    port = free_port()
    command = [
        sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--port=%d" % port, "--ip=127.0.0.1",
        "--gateway-url=" + os.environ["JUPYTER_GATEWAY_URL"], "--IdentityProvider.token=" + TOKEN,
        "--ServerApp.port_retries=0",
    ]
    process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
    try:
        asyncio.run(asyncio.wait_for(follow(Client(port), process), SECONDS_MAX))
    finally:
        process.terminate()
        process.wait(10)


main()
