"""The decision service in process: what fails is an answer, a slow policy blocks nothing else, and reloads cost nothing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import uvicorn
from starlette.types import Message

from queuewise.errors import InputError
from queuewise.serve.guarded_policy import GuardedPolicy
from queuewise.serve.live_policy import Decided, LivePolicy
from queuewise.serve.server import _Server
from queuewise.serve.service import MOST_HELD_BYTES, WARM_UP, DecisionService


def service(deadline_s: float | None = None) -> DecisionService:
    made = DecisionService(lambda: GuardedPolicy("fcfs", deadline_s=deadline_s))
    made.load()
    return made


async def ask(service: DecisionService, method: str, path: str, body: str = "") -> tuple[int, Any]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
    await service.app()(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_whatever_a_policy_does_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made = service()
    monkeypatch.setattr(LivePolicy, "decide", lambda self, snapshot: 1 / 0)
    monkeypatch.setattr(LivePolicy, "decide_columns", lambda self, columns, cluster: 1 / 0)
    status, found = asyncio.run(ask(made, "POST", "/v1/decide", WARM_UP.to_json()))
    assert status == 422
    assert "cannot decide" in found["error"]


def test_requests_together_hold_only_so_much_memory() -> None:
    made = service()
    made.held_bytes = MOST_HELD_BYTES
    status, found = asyncio.run(ask(made, "POST", "/v1/decide", WARM_UP.to_json()))
    assert (status, found["hint"]) == (503, "try again")
    made.held_bytes -= MOST_HELD_BYTES
    assert asyncio.run(ask(made, "POST", "/v1/decide", WARM_UP.to_json()))[0] == 200
    assert made.held_bytes == 0


def test_health_is_answered_while_a_policy_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    made = service()

    def slow(self: LivePolicy, snapshot: Any) -> Decided:
        time.sleep(0.5)
        return Decided(())

    monkeypatch.setattr(LivePolicy, "decide", slow)

    async def both() -> float:
        decision = asyncio.create_task(ask(made, "POST", "/v1/decide", WARM_UP.to_json()))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert (await ask(made, "GET", "/healthz"))[0] == 200
        waited = time.monotonic() - began
        assert (await decision)[0] == 200
        return waited

    assert asyncio.run(both()) < 0.3


def test_a_failed_reload_changes_nothing_and_a_failed_load_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    made = service()

    def fails() -> GuardedPolicy:
        raise RuntimeError("no such file")

    monkeypatch.setattr(made, "_make", fails)
    made.reload()
    assert asyncio.run(ask(made, "POST", "/v1/decide", WARM_UP.to_json()))[0] == 200
    never = DecisionService(fails)
    server = _Server(uvicorn.Config(never.app()), never)
    server._load(never.load)
    deadline = time.monotonic() + 10
    while not server.failed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.failed
    assert server.should_exit
    with pytest.raises(InputError):
        GuardedPolicy("nonsense")


def test_the_threads_of_a_policy_end_with_it() -> None:
    made = service(deadline_s=10.0)
    before = threading.active_count()
    for _ in range(3):
        made.reload()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
