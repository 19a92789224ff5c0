"""The decision service: answers, refusals, metrics, reload and stop, over a real socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from queuewise import load_policy
from queuewise.serve.audit_log import replay_audit
from queuewise.serve.server import DRAIN_S
from queuewise.serve.service import WARM_UP

READY_S = 60.0


class Client(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, url: str, body: bytes | str = b"", headers: dict[str, str] | None = None) -> tuple[int, Any]:
    client = Client(path)
    try:
        client.request(method, url, body, headers or {})
        answer = client.getresponse()
        content = answer.read()
    finally:
        client.close()
    return answer.status, json.loads(content) if answer.headers.get_content_type() == "application/json" else content.decode()


def started(tmp: Path, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
    path = tmp / "q.sock"
    command = [sys.executable, "-m", "queuewise", "serve", "--policy", "sjf+easy", "--socket", str(path), *options]
    with (tmp / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, env={**os.environ, "QUEUEWISE_LIVE_HOME": str(tmp / "home")})
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            if ask(path, "GET", "/readyz")[0] == 200:
                return process, path
        except OSError:
            assert process.poll() is None, (tmp / "log").read_text()
        time.sleep(0.05)
    process.kill()
    raise AssertionError((tmp / "log").read_text())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    tmp = tmp_path_factory.mktemp("service")
    process, path = started(tmp)
    yield process, path, tmp
    process.terminate()
    assert process.wait(20) == 0
    assert not path.exists()


SNAPSHOT = WARM_UP.to_json()
PLAIN = json.loads(SNAPSHOT)


def test_the_answer_is_that_of_load_policy(service: tuple[Any, Path, Path]) -> None:
    wanted = json.loads(json.dumps(load_policy("sjf+easy").decide(WARM_UP).as_json()))
    for body in (SNAPSHOT, json.dumps({"snapshot": json.loads(SNAPSHOT), "deadline_s": 30})):
        status, found = ask(service[1], "POST", "/v1/decide", body)
        assert status == 200
        assert found["outcome"] == "model"
        assert found["policy"] == "sjf+easy"
        assert {name: found[name] for name in wanted} == wanted


HOSTILE: dict[str, tuple[bytes | str, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "no UTF-8": (b'{"a": "\xff\xfe"}', 400),
    "deep": (b"[" * 5000 + b"]" * 5000, 400),
    "a list": (b"[]", 422),
    "a number": (b"1e400", 400),
    "empty": (b"{}", 422),
    "NaN": (SNAPSHOT.replace('"now": 1.0', '"now": NaN'), 400),
    "from the future": (SNAPSHOT.replace('"now": 1.0', '"now": -1e308'), 422),
    "wrong version": (SNAPSHOT.replace('"version": 1', '"version": 2'), 422),
    "negative cores": (SNAPSHOT.replace('"cpu_milli": 1000', '"cpu_milli": -1'), 422),
    "surrogate": (SNAPSHOT.replace("warm-up", "\\ud800"), 400),
    "bad deadline": (json.dumps({"snapshot": json.loads(SNAPSHOT), "deadline_s": -1}), 422),
    "more fields": (json.dumps({"snapshot": json.loads(SNAPSHOT), "shell": "rm"}), 422),
    "no snapshot": (json.dumps({"snapshot": 3}), 422),
    "an id with a zero": (SNAPSHOT.replace("warm-up", "a\\u0000"), 422),
    "ids of two kinds": (json.dumps({**PLAIN, "queue": [*PLAIN["queue"], {"job": {**PLAIN["queue"][0]["job"], "job_id": 7}}]}), 422),
    "unknown kind": (SNAPSHOT.replace('"gpus": 0, "kind": ""', '"gpus": 8, "kind": "nonsense"'), 422),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_are_refused(service: tuple[Any, Path, Path], name: str) -> None:
    body, wanted = HOSTILE[name]
    status, found = ask(service[1], "POST", "/v1/decide", body)
    assert status == wanted, found
    assert found["error"]
    assert ask(service[1], "GET", "/healthz") == (200, {"status": "ok"})


def test_other_methods_and_paths(service: tuple[Any, Path, Path]) -> None:
    assert ask(service[1], "GET", "/v1/decide")[0] == 405
    assert ask(service[1], "POST", "/v2/decide")[0] == 404
    assert ask(service[1], "GET", "/v1/openapi.json")[1]["openapi"] == "3.1.0"


def test_metrics_count_outcomes_and_name_nobody(service: tuple[Any, Path, Path]) -> None:
    ask(service[1], "POST", "/v1/decide", SNAPSHOT)
    ask(service[1], "POST", "/v1/decide", b"{}")
    status, text = ask(service[1], "GET", "/metrics")
    assert status == 200
    counts = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    assert counts['queuewise_decisions_total{outcome="model"}'] >= 1
    assert counts['queuewise_decisions_total{outcome="rejected"}'] >= 1
    assert counts["queuewise_decision_seconds_count"] >= 1
    assert "warm-up" not in text
    assert text.endswith("# EOF\n")


def test_the_socket_is_for_its_owner(service: tuple[Any, Path, Path]) -> None:
    assert service[1].stat().st_mode & 0o777 == 0o600


def test_reload_drops_no_request(service: tuple[Any, Path, Path]) -> None:
    process, path, tmp = service
    process.send_signal(signal.SIGHUP)
    deadline, number = time.monotonic() + 20, 0
    while (tmp / "log").read_text().count('"reloaded"') < 1 or number < 20:
        assert ask(path, "POST", "/v1/decide", SNAPSHOT)[0] == 200
        number += 1
        assert time.monotonic() < deadline


def test_the_switch_turns_it_off_within_a_second(service: tuple[Any, Path, Path]) -> None:
    _, path, tmp = service
    env = {**os.environ, "QUEUEWISE_LIVE_HOME": str(tmp / "home")}
    subprocess.run([sys.executable, "-m", "queuewise", "live", "off"], env=env, check=True, timeout=30)
    assert ask(path, "POST", "/v1/decide", SNAPSHOT) == (503, {"error": "switched off", "hint": "queuewise live on switches it on"})
    assert ask(path, "GET", "/readyz") == (503, {"status": "off"})
    subprocess.run([sys.executable, "-m", "queuewise", "live", "on"], env=env, check=True, timeout=30)
    assert ask(path, "POST", "/v1/decide", SNAPSHOT)[0] == 200


def test_a_late_policy_is_answered_by_the_fallback_and_a_token_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "token").chmod(0o600)
    audit = tmp_path / "audit.jsonl"
    process, path = started(tmp_path, "--deadline", "1e-6", "--token-file", str(tmp_path / "token"), "--audit", str(audit))
    try:
        assert ask(path, "POST", "/v1/decide", SNAPSHOT)[0] == 401
        assert ask(path, "POST", "/v1/decide", SNAPSHOT, {"Authorization": "Bearer wrong"})[0] == 401
        assert ask(path, "GET", "/metrics")[0] == 401
        status, found = ask(path, "POST", "/v1/decide", SNAPSHOT, {"Authorization": "Bearer secret"})
        assert (status, found["outcome"], found["policy"]) == (200, "timeout", "wise")
        [again] = replay_audit(audit)
        assert again.same
        assert again.again["decision"] == {name: found[name] for name in ("starts", "stops", "wake_at")}
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_the_socket_of_a_service_that_came_later_stays(tmp_path: Path) -> None:
    process, path = started(tmp_path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as later:
        later.bind(str(path))
        process.terminate()
        assert process.wait(20) == 0
        assert path.exists()


@pytest.mark.slow
def test_clients_that_never_finish_do_not_keep_it_from_stopping(tmp_path: Path) -> None:
    process, path = started(tmp_path)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for client in clients:
        client.connect(str(path))
        client.sendall(b"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert ask(path, "GET", "/healthz")[0] == 200
    process.terminate()
    assert process.wait(DRAIN_S + 5) == 0
    for client in clients:
        client.close()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_stale_socket_is_replaced_and_a_used_one_is_not(service: tuple[Any, Path, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "queuewise", "serve", "--policy", "sjf+easy", "--socket"]
    done = subprocess.run([*command, str(service[1])], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "another service listens there" in done.stderr
    process, path = started(tmp_path)
    process.kill()
    process.wait()
    assert path.exists()
    process, _ = started(tmp_path)
    process.terminate()
    assert process.wait(20) == 0
