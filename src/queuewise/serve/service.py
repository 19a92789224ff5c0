"""The decision service: snapshots in, decisions out, over HTTP on a unix socket or on loopback.

It holds no state between requests but the policy. A reload makes a second policy ready and then takes its place: requests that are being
answered keep the old one.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from queuewise.errors import QueuewiseError
from queuewise.policies.snapshot import Snapshot
from queuewise.serve.guarded_policy import Answer, GuardedPolicy
from queuewise.serve.kill_switch import is_off
from queuewise.serve.openapi import openapi
from queuewise.serve.service_metrics import CONTENT_TYPE, ServiceMetrics

MOST_BYTES = 64 * 2**20  # of a request
LONGEST_DEADLINE_S = 60.0
QUICK_S, QUICK_JOBS = 0.02, 500  # what is decided without a thread
FORGETTING = 0.7
JSON = "application/json"


@dataclass(frozen=True)
class Refusal(Exception):
    status: int
    error: str
    hint: str = ""


class DecisionService:
    """What answers the requests. `make` makes the policy, at the start and at every reload."""

    def __init__(self, make: Callable[[], GuardedPolicy], *, token: str = "", home: Path | None = None) -> None:
        self._make, self._token, self._home = make, token.encode(), home
        self._policy: GuardedPolicy | None = None
        self._stopping = False
        self._turn = asyncio.Lock()
        self._slowest_s = 1.0  # of the decisions that are not forgotten yet
        self.metrics = ServiceMetrics()
        self._read_metrics = partial(Response, media_type=CONTENT_TYPE)

    def load(self) -> None:
        """Make the policy ready, or ready again. A policy that cannot be made leaves the old one in place."""
        policy = self._make()
        policy.answer(WARM_UP)
        again = self._policy is not None
        self._policy = policy
        if again:
            self.metrics.note_reload()
        log_event("reloaded" if again else "ready", policy=policy.name, fallback=policy.fallback)

    def reload(self) -> None:
        """Load it again. Whatever goes wrong, the old one goes on answering."""
        if self._policy is None:
            log_event("reload failed", error="the first load has not ended")
            return
        try:
            self.load()
        except Exception as error:
            log_event("reload failed", error=f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        self._stopping = True

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/decide", self._decide, methods=["POST"]),
                Route("/v1/openapi.json", self._describe, methods=["GET"]),
                Route("/openapi.json", self._describe, methods=["GET"]),
                Route("/healthz", self._health, methods=["GET"]),
                Route("/readyz", self._ready, methods=["GET"]),
                Route("/metrics", self._measure, methods=["GET"]),
            ],
        )

    # --- requests

    async def _decide(self, request: Request) -> Response:
        began = time.perf_counter()
        try:
            self._authorise(request)
            policy = self._usable()
            content = _content(await _body(request))
            deadline = _deadline(content.pop("deadline_s", None)) if "snapshot" in content else None
            plain = content.get("snapshot") if "snapshot" in content else content
            if not isinstance(plain, dict) or (set(content) - {"snapshot"} and "snapshot" in content):
                raise Refusal(422, "the request is neither a snapshot nor an object with snapshot and deadline_s", "see /v1/openapi.json")
            snapshot = Snapshot.from_plain(plain)
            answer = await self._answer(policy, snapshot, deadline)
        except Refusal as refusal:
            return self._refused(refusal)
        except QueuewiseError as error:
            return self._refused(Refusal(422, error.message, error.hint))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # there is an answer to every request, and it is no 500
            log_event("failed", error=f"{type(error).__name__}: {error}"[:500])
            return self._refused(Refusal(422, "the snapshot cannot be decided", "the log of the service says why; report it"))
        elapsed = time.perf_counter() - began
        self.metrics.note_decision(answer.outcome, elapsed, len(answer.decided))
        self.metrics.note_snapshot(snapshot)
        if answer.problem:
            log_event("fallback answered", outcome=answer.outcome, policy=policy.name, problem=answer.problem[:500])
        found = {**answer.decided.as_json(), "outcome": answer.outcome, "policy": answer.policy, "elapsed_s": elapsed}
        return Response(orjson.dumps(found), media_type=JSON)

    async def _answer(self, policy: GuardedPolicy, snapshot: Snapshot, deadline_s: float | None) -> Answer:
        """Decide, one request after another: at once if decisions are quick, else in a thread, so that /healthz is answered meanwhile."""
        async with self._turn:
            began = time.perf_counter()
            if self._slowest_s < QUICK_S and len(snapshot.queue) <= QUICK_JOBS:
                answer = policy.answer(snapshot, deadline_s)
            else:
                answer = await asyncio.to_thread(policy.answer, snapshot, deadline_s)
            self._slowest_s = max(time.perf_counter() - began, self._slowest_s * FORGETTING)
        return answer

    async def _health(self, request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def _ready(self, request: Request) -> Response:
        state = "stopping" if self._stopping else "loading" if self._policy is None else "off" if self._is_off() else "ready"
        return Response(orjson.dumps({"status": state}), status_code=200 if state == "ready" else 503, media_type=JSON)

    async def _measure(self, request: Request) -> Response:
        try:
            self._authorise(request)
        except Refusal as refusal:
            return self._refused(refusal)
        return self._read_metrics(self.metrics.text())

    async def _describe(self, request: Request) -> Response:
        return Response(orjson.dumps(openapi()), media_type=JSON)

    def _refused(self, refusal: Refusal) -> Response:
        self.metrics.note_rejection()
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        content = orjson.dumps({"error": _encodable(refusal.error), "hint": _encodable(refusal.hint)})
        return Response(content, refusal.status, headers, JSON)

    def _authorise(self, request: Request) -> None:
        if not self._token:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._token):
            raise Refusal(401, "the token is missing or wrong", "send the header Authorization: Bearer TOKEN")

    def _usable(self) -> GuardedPolicy:
        if self._policy is None:
            raise Refusal(503, "the policy is not loaded yet", "try again when /readyz says ready")
        if self._is_off():
            raise Refusal(503, "switched off", "queuewise live on switches it on")
        return self._policy

    def _is_off(self) -> bool:
        return self._home is not None and is_off(self._home)


WARM_UP = Snapshot.from_plain(
    {
        "version": 1,
        "now": 1.0,
        "queue": [
            {
                "job": {
                    "job_id": "warm-up", "submit": 0.0, "estimate": 1.0, "num_tasks": 1, "min_tasks": 1, "max_tasks": 1, "gpu_milli": 0,
                    "cpu_milli": 1000, "mem_mib": 0, "priority": 0.0, "requested": 1.0, "predicted": 1.0,
                }
            }
        ],
        "running": [],
        "nodes": [
            {"index": 0, "state": "up", "free_cpu_milli": 1000, "free_mem_mib": 1024,
             "shape": {"name": "n", "cpu_milli": 1000, "mem_mib": 1024}}
        ],
    }
)  # fmt: skip


async def _body(request: Request) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MOST_BYTES:
        raise Refusal(413, f"the request has {int(length):,} bytes, at most {MOST_BYTES:,} are read", "send a smaller snapshot")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Refusal(413, f"the request has more than {MOST_BYTES:,} bytes", "send a smaller snapshot")
        parts.append(part)
    return b"".join(parts)


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the request is not JSON: {error}", "send what Snapshot.to_json wrote") from None
    if not isinstance(content, dict):
        raise Refusal(422, "the request is not an object", "send what Snapshot.to_json wrote")
    return content


def _deadline(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_DEADLINE_S:
        raise Refusal(422, f"deadline_s is {value!r:.60}", f"give seconds above 0 and up to {LONGEST_DEADLINE_S:g}")
    return float(value)


def _encodable(text: str) -> str:
    """Names in requests may hold characters that are no text."""
    return text.encode("utf-8", "replace").decode()


def log_event(event: str, **fields: Any) -> None:
    """One line of JSON on stderr."""
    print(json.dumps({"time": time.time(), "event": event, **fields}), file=sys.stderr, flush=True)
