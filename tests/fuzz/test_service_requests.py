"""Requests to the decision service with anything in any place: each is answered or refused, never with a 500."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from effort import tries
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.service import WARM_UP, DecisionService

ANSWERED = {200, 400, 413, 422}
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.sampled_from(["up", "down", "drained", "n", "warm-up", "T4", 2**31, 2**63, -1, 1e308, [], {}, [[0, 1, []]]]),
    st.lists(st.integers(-1, 3), max_size=3),
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


PLAIN = json.loads(WARM_UP.to_json())
PLACES = places(PLAIN)[1:]


def ask(service: DecisionService, body: bytes) -> tuple[int, bytes]:
    """One request, straight to the application."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/v1/decide",
        "raw_path": b"/v1/decide", "query_string": b"", "headers": [(b"content-length", str(len(body)).encode())],
        "scheme": "http", "root_path": "",
        "server": ("s", 1), "client": ("c", 1),
    }  # fmt: skip

    async def run() -> None:
        await service.app()(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])


@pytest.fixture(scope="module")
def service() -> DecisionService:
    made = DecisionService(lambda: GuardedPolicy("sjf+easy"))
    made.load()
    return made


@tries(2000)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
def test_changed_snapshots_are_answered_or_refused(service: DecisionService, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    plain = copy.deepcopy(PLAIN)
    for place, value in changes:
        inner = plain
        try:
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = copy.deepcopy(value)  # values are shared by all examples
        except (TypeError, IndexError, KeyError):
            continue  # an earlier change has removed the place
    status, content = ask(service, json.dumps(plain).encode())
    assert status in ANSWERED
    assert json.loads(content)


@tries(2000)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_refused(service: DecisionService, body: bytes) -> None:
    status, content = ask(service, body)
    assert status in ANSWERED - {200}
    assert json.loads(content)["error"]
