#!/usr/bin/env python3
"""The part of an agent that uses tools: a client of MCP over stdin and stdout, without any package.

It starts `host-bridge mcp`, asks which tools there are, runs code in a sandbox, runs more code that
uses the first one's variables, plots a figure, and writes the figure to a file:

    python3 agent.py [DIRECTORY]

A real agent lets a model choose the tool and write the code; the messages are the same.
"""

import base64
import json
import pathlib
import subprocess
import sys

PROTOCOL = "2025-11-25"
HERE = pathlib.Path(__file__).resolve().parent


class Server:
    """`host-bridge mcp` as a child process: one line of JSON for each message, in both directions."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.last_id = 0
        self.ask(
            "initialize",
            protocolVersion=PROTOCOL,
            capabilities={},
            clientInfo={"name": "example-agent", "version": "1"},
        )
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        """Sends a request and returns the result of its answer."""
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") != self.last_id:
                continue  # a notification, such as the progress of a call
            if "error" in answer:
                raise RuntimeError(answer["error"]["message"])
            return answer["result"]
        raise RuntimeError("the server ended without an answer")

    def call(self, tool, **arguments):
        """Calls a tool. `isError` means that the tool ran and failed; a model should see why."""
        result = self.ask("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(result["content"][0]["text"])
        return result

    def close(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60)


def save_figures(result, directory):
    """Writes each figure of a result to a file: PNG comes as an image, SVG as a resource."""
    saved = []
    for part in result["content"]:
        if part["type"] == "image":
            kind, data = part["mimeType"], base64.b64decode(part["data"])
        elif part["type"] == "resource" and "text" in part["resource"]:
            kind, data = part["resource"]["mimeType"], part["resource"]["text"].encode()
        else:
            continue
        ending = kind.split("/")[1].split("+")[0]  # image/svg+xml -> svg
        path = directory / f"figure-{len(saved) + 1}.{ending}"
        path.write_bytes(data)
        saved.append(path)
    return saved


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    directory.mkdir(parents=True, exist_ok=True)
    server = Server("host-bridge", "mcp")

    tools = [tool["name"] for tool in server.ask("tools/list")["tools"]]
    print(len(tools), "tools, among them", ", ".join(sorted(tools)[:3]))

    server.call("execute", code="answer = 41")
    kept = server.call("execute", code="answer + 1")
    print("variables live on between calls:", kept["structuredContent"]["value"])

    drawn = server.call("execute", code=(HERE / "figure.py").read_text())
    print(drawn["structuredContent"]["stdout"], end="")
    for path in save_figures(drawn, directory):
        print("wrote", path)

    sys.exit(server.close())


if __name__ == "__main__":
    main()
