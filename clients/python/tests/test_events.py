"""Events of sandboxes, followed over cuts."""

from __future__ import annotations

from typing import Any

from conftest import Make, Scissors, eventually

import burrow


def test_the_life_of_a_sandbox_is_followed_over_cuts(scissors: Scissors, flavour: Make) -> None:
    client = flavour(scissors.url)
    with client.sandbox() as box:
        name, first = box.name, box.info().id
    scissors.cut("GET /v1/events", times=2)
    seen: list[burrow.Event] = []
    source: Any = client.events(sandboxes=[name])
    for event in source:
        seen.append(event)
        if event.kind == "removed" and len(seen) < 8:
            client.create(name)
            client.remove(name)
        elif event.kind == "removed":
            break
    source.close()
    kinds = [event.kind for event in seen]
    assert kinds == 2 * ["created", "ready", "exited", "removed"]
    assert [event.id for event in seen[:4]] == 4 * [first]
    offsets = [event.offset for event in seen]
    assert offsets == sorted(set(offsets))
    assert seen[2].reason == "killed"
    assert scissors.cuts == []


def test_what_has_happened_is_read_from_an_offset_and_by_kind(client: Any) -> None:
    with client.sandbox() as box:
        ready: list[burrow.Event] = []

        def is_there() -> bool:
            found = client.events(sandboxes=[box.name], kinds=["ready"], follow=False)
            ready[:] = list(found)
            return bool(ready)

        eventually("the sandbox is ready in the stream", is_there)
        assert [event.kind for event in ready] == ["ready"]
        since = ready[0].offset
        later = list(client.events(since=since, follow=False))
        assert later[0] == ready[0]
        assert ready[0].raw["namespace"] == client.namespace
