"""HTTP below JSON-RPC: connections that live on, bodies of every size, and who is let in."""

import asyncio
import http.client
import json
import resource
import socket
import time

from microsandbox import PythonSandbox

import wire
from wire import HOST, PATH, PORT, Connection, Sandbox, post

_LIST = {"jsonrpc": "2.0", "method": "sandbox.metrics.get", "params": {"namespace": "default"}, "id": "1"}
_BODY = json.dumps(_LIST).encode()


def _get(path, **headers):
    connection = http.client.HTTPConnection(HOST, PORT, timeout=wire.PATIENCE_SECS)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.headers, response.read()


def _head(length, **more):
    lines = [f"POST {PATH} HTTP/1.1", f"Host: {HOST}:{PORT}", "Content-Type: application/json"]
    lines += [f"Content-Length: {length}"] + [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _answer(file):
    """Status and body of the next answer in what a socket reads."""
    status = int(file.readline().split()[1])
    headers = http.client.parse_headers(file)
    return status, file.read(int(headers["Content-Length"]))


def health_answers():
    status, headers, body = _get("/api/v1/health")
    assert status == 200 and headers["Content-Type"].startswith("application/json"), (status, body)
    json.loads(body)


def a_connection_idle_for_longer_than_clients_keep_it_is_still_there():
    connection = Connection()
    connection.ask(_LIST)
    sock = connection.http.sock
    time.sleep(16)
    connection.ask(_LIST)
    assert connection.http.sock is sock, "it was opened anew"
    connection.close()


async def a_session_that_paused_posts_again_without_an_error():
    async with PythonSandbox.create() as sandbox:
        for pause in (0, 4.9, 5.1, 10):
            await asyncio.sleep(pause)
            assert await (await sandbox.run("print('on')")).output() == "on", pause


def many_requests_go_over_one_connection():
    connection = Connection()
    connection.ask(_LIST)
    sock = connection.http.sock
    for _ in range(500):
        connection.ask(_LIST)
    assert connection.http.sock is sock
    connection.close()


def requests_sent_ahead_are_answered_in_turn():
    with socket.create_connection((HOST, PORT), timeout=wire.PATIENCE_SECS) as sock:
        for number in range(5):
            body = json.dumps(_LIST | {"id": number}).encode()
            sock.sendall(_head(len(body)) + body)
        answers = sock.makefile("rb")
        for number in range(5):
            status, body = _answer(answers)
            assert status == 200 and json.loads(body)["id"] == number, (status, body)


def a_body_in_chunks_is_taken():
    connection = http.client.HTTPConnection(HOST, PORT, timeout=wire.PATIENCE_SECS)
    pieces = (_BODY[at : at + 7] for at in range(0, len(_BODY), 7))
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    connection.request("POST", PATH, body=pieces, headers=headers, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 200 and json.loads(response.read())["id"] == "1"


def a_client_that_waits_to_be_asked_for_its_body_is_asked():
    with socket.create_connection((HOST, PORT), timeout=wire.PATIENCE_SECS) as sock:
        sock.sendall(_head(len(_BODY), Expect="100-continue"))
        assert sock.recv(1000).startswith(b"HTTP/1.1 100"), "it was not"
        sock.sendall(_BODY)
        assert _answer(sock.makefile("rb"))[0] == 200


def a_body_beyond_the_limit_is_refused_before_it_is_sent():
    with socket.create_connection((HOST, PORT), timeout=wire.PATIENCE_SECS) as sock:
        sock.sendall(_head(1 << 40))
        status, body = _answer(sock.makefile("rb"))
        assert status == 413, (status, body)
        assert b"limit" in body and any(digit in body for digit in b"123456789"), body


async def code_beyond_the_limit_raises_in_words():
    async with PythonSandbox.create() as sandbox:
        for megabytes in (65, 100):
            try:
                await sandbox.run("#" + "x" * (megabytes << 20))
            except RuntimeError as error:
                assert "limit" in str(error), str(error)[:500]
            else:
                raise AssertionError(f"{megabytes} MB were accepted")
        assert await (await sandbox.run("print('on')")).output() == "on"


def a_get_of_the_rpc_path_says_what_it_takes():
    status, headers, body = _get(PATH)
    assert status == 405 and "POST" in headers["Allow"] and body, (status, body)


def a_path_that_is_not_there_says_so():
    status, headers, body = _get("/api/v2/rpc")
    assert status == 404 and headers["Content-Type"].startswith("application/json") and body, (status, body)


def a_web_page_cannot_drive_the_server():
    strangers = ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"})
    for headers in strangers:
        status, _, body = post(_BODY, headers)
        assert status in (403, 421) and len(body.split()) > 3, (headers, status, body)


def a_body_that_a_form_could_send_is_refused():
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status, _, body = post(_BODY, {"Content-Type": kind})
        assert status == 415 and b"json" in body.lower(), (kind, status, body)
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        assert post(_BODY, {"Content-Type": kind})[0] == 200, kind


def a_client_that_sends_its_body_slowly_holds_nobody_up():
    with socket.create_connection((HOST, PORT), timeout=wire.PATIENCE_SECS) as slow, Sandbox() as sandbox:
        slow.sendall(_head(len(_BODY)) + _BODY[:5])
        for _ in range(20):
            seconds, _ = wire.took(sandbox.run, "1")
            assert seconds < 1, seconds
        slow.sendall(_BODY[5:])
        assert _answer(slow.makefile("rb"))[0] == 200


def half_closed_connections_are_answered_or_cleanly_cut():
    for _ in range(50):
        with socket.create_connection((HOST, PORT), timeout=wire.PATIENCE_SECS) as sock:
            sock.sendall(_head(len(_BODY)) + _BODY)
            sock.shutdown(socket.SHUT_WR)
            said = sock.makefile("rb").read()
            assert not said or said.startswith(b"HTTP/1.1 200"), said
    assert post(_BODY)[0] == 200


def a_thousand_idle_connections_hold_nobody_up():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    idle = [socket.create_connection((HOST, PORT), timeout=wire.PATIENCE_SECS) for _ in range(1000)]
    try:
        with Sandbox() as sandbox:
            for _ in range(20):
                seconds, told = wire.took(sandbox.run, "print('on')")
                assert seconds < 1 and wire.text(told) == "on\n", seconds
    finally:
        for sock in idle:
            sock.close()
