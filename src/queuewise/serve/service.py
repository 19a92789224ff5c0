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
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from queuewise.errors import QueuewiseError
from queuewise.policies.pass_tables import SUBMIT
from queuewise.policies.snapshot import Snapshot
from queuewise.serve.audit_log import AuditLog, decision_entry
from queuewise.serve.guarded_policy import Answer, GuardedPolicy
from queuewise.serve.kill_switch import is_off
from queuewise.serve.openapi import openapi
from queuewise.serve.request_columns import columns_of_request
from queuewise.serve.service_metrics import CONTENT_TYPE, ServiceMetrics, ShownQueue
from queuewise.serve.snapshot_columns import SnapshotColumns

MOST_BYTES, MOST_HELD_BYTES = 64 * 2**20, 256 * 2**20  # of a request; of all that are being read or answered
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

    def __init__(
        self, make: Callable[[], GuardedPolicy], *, token: str = "", home: Path | None = None, audit: AuditLog | None = None
    ) -> None:
        self._make, self._token, self._home, self._audit = make, token.encode(), home, audit
        self._policy: GuardedPolicy | None = None
        self._stopping = False
        self._turn = asyncio.Lock()
        self.held_bytes = 0  # of the requests that are being read or answered
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

    def app(self) -> Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]:
        others = self._routes()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            """Decisions go past the router and its middleware, which take longer than some of them."""
            if scope["type"] == "http" and scope["path"] == "/v1/decide" and scope["method"] == "POST":
                response = await self._decide(Request(scope, receive))
                await response(scope, receive, send)
            else:
                await others(scope, receive, send)

        return app

    def _routes(self) -> Starlette:
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
        began, held = time.perf_counter(), _HeldBytes(self)
        try:
            self._authorise(request)
            policy = self._usable()
            content = _content(await held.read(request))
            deadline = _deadline(content.pop("deadline_s", None)) if "snapshot" in content else None
            plain = content.get("snapshot") if "snapshot" in content else content
            if not isinstance(plain, dict) or (set(content) - {"snapshot"} and "snapshot" in content):
                raise Refusal(422, "the request is neither a snapshot nor an object with snapshot and deadline_s", "see /v1/openapi.json")
            answer = await self._answer(policy, plain, deadline)
            self._record(answer, plain, policy)
        except Refusal as refusal:
            return self._refused(refusal)
        except QueuewiseError as error:
            return self._refused(Refusal(422, error.message, error.hint))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # there is an answer to every request, and it is no 500
            log_event("failed", error=f"{type(error).__name__}: {error}"[:500])
            return self._refused(Refusal(422, "the snapshot cannot be decided", "the log of the service says why; report it"))
        finally:
            held.release()
        elapsed = time.perf_counter() - began
        self.metrics.note_decision(answer.outcome, elapsed, len(answer.decided))
        if answer.problem:
            log_event("fallback answered", outcome=answer.outcome, policy=policy.name, problem=answer.problem[:500])
        found = {**answer.decided.as_json(), "outcome": answer.outcome, "policy": answer.policy, "elapsed_s": elapsed}
        return Response(orjson.dumps(found), media_type=JSON)

    def _record(self, answer: Answer, plain: dict[str, Any], policy: GuardedPolicy) -> None:
        """What cannot be recorded is not answered."""
        if self._audit is None:
            return
        try:
            self._audit.write(decision_entry(answer, plain, policy, mode="serve"))
        except OSError as error:
            raise Refusal(503, f"the audit log cannot be written: {error.strerror}", "free space, or serve without --audit") from None

    async def _answer(self, policy: GuardedPolicy, plain: dict[str, Any], deadline_s: float | None) -> Answer:
        """Decide, one request after another."""
        found = columns_of_request(plain)
        async with self._turn:
            answer = None if found is None else policy.answer_at_once(*found, deadline_s)
            if answer is not None and found is not None:
                self.metrics.note_queue(partial(_queue_of_columns, found[0]))
                return answer
            snapshot = Snapshot.from_plain(plain)
            answer = await self._answer_from_snapshot(policy, snapshot, deadline_s)
            self.metrics.note_queue(partial(_queue_of_snapshot, snapshot))
        return answer

    async def _answer_from_snapshot(self, policy: GuardedPolicy, snapshot: Snapshot, deadline_s: float | None) -> Answer:
        """At once if decisions are quick, else in a thread, so that /healthz is answered meanwhile."""
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


def _queue_of_columns(columns: SnapshotColumns) -> ShownQueue:
    waits = (columns.now - columns.jobs[: columns.waiting, SUBMIT]).tolist()
    return ShownQueue(columns.named("partition")[: columns.waiting], waits, len(columns.runs))


def _queue_of_snapshot(snapshot: Snapshot) -> ShownQueue:
    jobs = [one.job for one in snapshot.queue]
    return ShownQueue([job.partition for job in jobs], [snapshot.now - job.submit for job in jobs], len(snapshot.running))


class _HeldBytes:
    """The body of a request, counted in the service until it is released."""

    def __init__(self, service: DecisionService) -> None:
        self._service, self._size = service, 0

    async def read(self, request: Request) -> bytes:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > MOST_BYTES:
            raise Refusal(413, f"the request has {int(length):,} bytes, at most {MOST_BYTES:,} are read", "send a smaller snapshot")
        parts = []
        async for part in request.stream():
            self._size += len(part)
            self._service.held_bytes += len(part)
            if self._size > MOST_BYTES:
                raise Refusal(413, f"the request has more than {MOST_BYTES:,} bytes", "send a smaller snapshot")
            if self._service.held_bytes > MOST_HELD_BYTES:
                raise Refusal(503, f"requests of more than {MOST_HELD_BYTES:,} bytes are being answered", "try again")
            parts.append(part)
        return b"".join(parts)

    def release(self) -> None:
        self._service.held_bytes -= self._size
        self._size = 0


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
