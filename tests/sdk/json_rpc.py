"""JSON-RPC 2.0 as the server speaks it, whatever the method: ids, errors, batches."""

import json

import wire
from wire import BAD_PARAMS, INVALID_REQUEST, PARSE_ERROR, UNKNOWN_METHOD, Sandbox, ask, failure, post

_LIST = {"jsonrpc": "2.0", "method": "sandbox.metrics.get", "params": {"namespace": "default"}, "id": "1"}


def _refused(body, code):
    """The answer to these bytes, which is one error with this code."""
    status, headers, answer = post(body)
    assert status == 200, (status, answer)
    answer = wire.checked(headers, answer)
    assert answer["error"]["code"] == code, answer
    return answer


def what_is_no_json_is_a_parse_error():
    for body in (b"{", b"hello", b"{'a': 1}", b'{"a": }', b"[1,", b'"\xff"', b"\xef\xbb\xbf{", b"{} {}", b"\0"):
        assert _refused(body, PARSE_ERROR)["id"] is None, body


def an_empty_body_is_an_error_in_words():
    assert _refused(b"", PARSE_ERROR)["id"] is None


def a_deep_nesting_is_a_parse_error():
    for body in (b"[" * 1_000_000, b'{"a":' * 1_000_000):
        assert _refused(body, PARSE_ERROR)["id"] is None


def what_is_no_request_is_an_invalid_request():
    for request in (
        5,
        "text",
        None,
        True,
        {},
        {"jsonrpc": "2.0", "id": "1"},
        {"jsonrpc": "2.0", "method": 5, "id": "1"},
        {"jsonrpc": "2.0", "method": None, "id": "1"},
        {"jsonrpc": "1.0", "method": "sandbox.metrics.get", "id": "1"},
        {"jsonrpc": 2.0, "method": "sandbox.metrics.get", "id": "1"},
        {"jsonrpc": "2.0", "method": "sandbox.metrics.get", "id": {}},
        {"jsonrpc": "2.0", "method": "sandbox.metrics.get", "id": [1]},
    ):
        _refused(json.dumps(request).encode(), INVALID_REQUEST)


def an_invalid_request_is_answered_under_its_id():
    answer = _refused(json.dumps({"jsonrpc": "2.0", "method": 5, "id": "mine"}).encode(), INVALID_REQUEST)
    assert answer["id"] in ("mine", None), answer


def an_unknown_method_is_named():
    for method in ("sandbox.fly", "", "sandbox.start ", "Sandbox.Start", "rpc.discover"):
        answer = ask({"jsonrpc": "2.0", "method": method, "params": {}, "id": 7})
        assert answer["error"]["code"] == UNKNOWN_METHOD and answer["id"] == 7, answer
        assert method in answer["error"]["message"], answer


def params_of_another_shape_are_bad_params():
    for params in (5, "text", True, [], ["default", "name"], {"sandbox": 5}, {"sandbox": ["a"]}, {"namespace": 5, "sandbox": "a"}):
        for method in ("sandbox.start", "sandbox.stop", "sandbox.repl.run", "sandbox.command.run"):
            answer = ask({"jsonrpc": "2.0", "method": method, "params": params, "id": "1"})
            assert answer["error"]["code"] == BAD_PARAMS, (method, params, answer)


def missing_params_are_named():
    for method, missing in (
        ("sandbox.start", "sandbox"),
        ("sandbox.stop", "sandbox"),
        ("sandbox.repl.run", "sandbox"),
        ("sandbox.command.run", "sandbox"),
    ):
        for request in ({"params": {}}, {"params": {"namespace": "default"}}, {}, {"params": None}):
            answer = ask({"jsonrpc": "2.0", "method": method, "id": "1", **request})
            assert answer["error"]["code"] == BAD_PARAMS, (method, request, answer)
            assert missing in answer["error"]["message"], answer
    with Sandbox() as sandbox:
        run = lambda **params: sandbox.connection.call("sandbox.repl.run", **sandbox.which, **params)
        assert "code" in failure(run, language="python").message
        assert "language" in failure(run, code="1").message
        run = lambda **params: sandbox.connection.call("sandbox.command.run", **sandbox.which, **params)
        assert "command" in failure(run, args=[]).message


def params_that_nobody_knows_are_passed_over():
    with Sandbox() as sandbox:
        told = sandbox.run("print('on')", session="x", priority=5)
        assert wire.text(told) == "on\n"


def ids_come_back_as_they_were():
    for identity in ("uuid", "", 1, 0, -5, 2**53, 1.5, None, "ä😀", "x" * 10_000):
        assert ask(_LIST | {"id": identity})["id"] == identity


def a_request_without_an_id_is_carried_out_and_answered():
    request = {key: value for key, value in _LIST.items() if key != "id"}
    answer = ask(request)
    assert answer["id"] is None and "sandboxes" in answer["result"], answer


def an_error_is_never_null():
    with Sandbox() as sandbox:
        for method, params in (
            ("sandbox.repl.run", {"language": "python", "code": "1/0"}),
            ("sandbox.command.run", {"command": "ls", "args": ["/nonexistent"]}),
            ("sandbox.metrics.get", {}),
            ("sandbox.start", {"config": {}}),
        ):
            answer = ask({"jsonrpc": "2.0", "method": method, "params": {**sandbox.which, **params}, "id": "1"})
            assert "error" not in answer and answer["result"] is not None, answer


def a_batch_is_answered_one_by_one():
    with Sandbox() as sandbox:
        run = lambda code: {
            "jsonrpc": "2.0",
            "method": "sandbox.repl.run",
            "params": {**sandbox.which, "language": "python", "code": code},
        }
        batch = [
            run("print('first')") | {"id": "a"},
            _LIST | {"id": 2},
            run("noticed = 1"),
            {"jsonrpc": "2.0", "method": "sandbox.fly", "id": 3},
            5,
            {"jsonrpc": "2.0", "id": 4},
            run("print('last')") | {"id": "z"},
        ]
        answers = ask(batch)
        assert isinstance(answers, list), answers
        by_id = {answer["id"]: answer for answer in answers if answer["id"] not in (None, 4)}
        assert set(by_id) == {"a", 2, 3, "z"}, answers
        assert wire.text(by_id["a"]["result"]) == "first\n" and wire.text(by_id["z"]["result"]) == "last\n"
        assert by_id[3]["error"]["code"] == UNKNOWN_METHOD
        # Two were no requests; the one without an id is carried out and not answered.
        others = [answer for answer in answers if answer["id"] in (None, 4)]
        assert [other["error"]["code"] for other in others] == [INVALID_REQUEST] * 2, answers
        assert wire.text(sandbox.run("print(noticed)")) == "1\n"


def an_empty_batch_is_an_invalid_request():
    answer = ask([])
    assert isinstance(answer, dict) and answer["error"]["code"] == INVALID_REQUEST, answer


def a_batch_of_nonsense_is_a_batch_of_errors():
    answers = ask([1, "two", None])
    assert [answer["error"]["code"] for answer in answers] == [INVALID_REQUEST] * 3, answers
    assert all(answer["id"] is None for answer in answers), answers


def a_batch_of_notifications_has_no_answer():
    notification = {key: value for key, value in _LIST.items() if key != "id"}
    status, _, body = post(json.dumps([notification, notification]).encode())
    assert (status, body) == (204, b""), (status, body)


def a_batch_of_a_hundred_is_answered_whole():
    answers = ask([_LIST | {"id": n} for n in range(100)])
    assert sorted(answer["id"] for answer in answers) == list(range(100))


def a_batch_without_end_is_refused_in_words():
    status, headers, body = post(json.dumps([_LIST] * 100_000).encode())
    assert status in (200, 413), status
    if status == 200:
        answer = wire.checked(headers, body)
        assert isinstance(answer, list) or answer["error"]["code"] == INVALID_REQUEST, answer
        assert not isinstance(answer, list) or len(answer) == 100_000
