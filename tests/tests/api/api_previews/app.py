"""An HTTP server for tests of previews: it says what it got, byte by byte, and does what its path says."""

import asyncio
import base64
import hashlib
import json

released = asyncio.Event()


async def head(reader):
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [[name.lower(), value.strip()] for name, value in (line.split(":", 1) for line in lines)]
    return method, target, headers


async def chunks(reader, headers):
    """The body as it comes."""
    known = dict(headers)
    if known.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    left = int(known.get("content-length", 0))
    while left:
        data = await reader.read(min(left, 65536))
        if not data:
            raise EOFError
        left -= len(data)
        yield data


def answer(status, body, *headers):
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def websocket(reader, writer, headers):
    key = dict(headers)["sec-websocket-key"].encode()
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    lines = "HTTP/1.1 101 Switching Protocols", "upgrade: websocket", "connection: upgrade"
    writer.write("\r\n".join([*lines, f"sec-websocket-accept: {accept.decode()}", "", ""]).encode())
    while True:
        opening, length = await reader.readexactly(2)
        length &= 127
        if length > 125:
            length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
        mask = await reader.readexactly(4)
        data = await reader.readexactly(length)
        data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        if length < 126:
            size = bytes([length])
        elif length < 65536:
            size = bytes([126]) + length.to_bytes(2, "big")
        else:
            size = bytes([127]) + length.to_bytes(8, "big")
        writer.write(bytes([opening]) + size + data)
        if opening & 15 == 8:
            return


async def serve(reader, writer):
    try:
        method, target, headers = await head(reader)
        path = target.split("?")[0]
        if path == "/ws":
            await websocket(reader, writer, headers)
        elif path == "/events":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: first\n\n")
            await released.wait()
            writer.write(b"data: second\n\n")
        elif path == "/release":
            released.set()
            writer.write(answer("200 OK", b""))
        elif path == "/echo":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            async for data in chunks(reader, headers):
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        elif path.startswith("/raw/"):
            # What an answer is, in hexadecimal digits.
            writer.write(bytes.fromhex(path[5:]))
        elif path == "/early":
            writer.write(answer("413 Content Too Large", b"no"))
        elif path == "/slow":
            await asyncio.sleep(0.2)
            writer.write(answer("200 OK", b"slow"))
        else:
            digest, count = hashlib.sha256(), 0
            async for data in chunks(reader, headers):
                digest.update(data)
                count += len(data)
            said = {"method": method, "target": target, "headers": headers}
            said |= {"bytes": count, "sha256": digest.hexdigest()}
            writer.write(answer("200 OK", json.dumps(said).encode(), "content-type: application/json"))
        await writer.drain()
    except (EOFError, ConnectionError, ValueError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
