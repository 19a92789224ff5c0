"""Clients without a token, too, can neither fill the memory of the service nor keep others out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import uvicorn
from uvicorn.server import ServerState

from queuewise.serve import connections
from queuewise.serve.connections import MOST_HEAD_BYTES, Connection
from queuewise.serve.server import LOOK_S, _Server

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = b"a" * (4 * 2**20)  # more than a socket holds
Dialogue = Callable[[Callable[[], socket.socket], ServerState], Awaitable[None]]


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """/wait is answered when the client has left, /large at length."""
    while scope["path"] == "/wait" and (await receive())["type"] != "http.disconnect":
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LARGE if scope["path"] == "/large" else b"yes"})


def serve(path: Path, dialogue: Dialogue) -> None:
    """Hold a dialogue with a server in this process."""

    async def run() -> None:
        config, state = uvicorn.Config(answer, http=Connection, ws="none", lifespan="off", log_config=None), ServerState()
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Connection(config, state, {}), str(path))

        def connected() -> socket.socket:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            client.connect(str(path))
            return client

        async with server:
            await asyncio.wait_for(dialogue(connected, state), 10)

    asyncio.run(run())


async def said(client: socket.socket, question: bytes = b"") -> bytes:
    """What is answered; nothing if the connection is closed."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(client, question)
        return await loop.sock_recv(client, 4096)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("part", [b"X: y\r\n", b"a"])
def test_a_head_without_end_is_refused(part: bytes, tmp_path: Path) -> None:
    async def dialogue(connected: Callable[[], socket.socket], state: ServerState) -> None:
        with connected() as client:
            head = b"GET / HTTP/1.1\r\nX: " + part * (2 * MOST_HEAD_BYTES // len(part))
            assert (await said(client, head)).startswith(b"HTTP/1.1 431")
            assert await said(client) == b""
        with connected() as client:  # a body is as long as it is
            assert b"200" in await said(client, b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200_000)
            assert b"200" in await said(client, ASK)

    serve(tmp_path / "s", dialogue)


def test_clients_that_ask_nothing_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 3)

    async def dialogue(connected: Callable[[], socket.socket], state: ServerState) -> None:
        waiting, *idle = (connected() for _ in range(3))
        await asyncio.get_running_loop().sock_sendall(waiting, ASK.replace(b"/ ", b"/wait ", 1))
        await asyncio.sleep(0.05)
        with connected() as client:
            assert b"200" in await said(client, ASK)
            assert await said(idle[0]) == b""  # it has waited longest
            assert b"200" in await said(idle[1], ASK)
        assert sum(one.is_answered for one in state.connections) == 1  # type: ignore[union-attr]
        for one in (waiting, *idle):
            one.close()

    serve(tmp_path / "s", dialogue)


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", ASK.replace(b"/ ", b"/large ", 1)])
def test_clients_that_keep_it_waiting_are_left(begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dialogue(connected: Callable[[], socket.socket], state: ServerState) -> None:
        with connected() as client, connected() as sound:
            await asyncio.get_running_loop().sock_sendall(client, begun)
            assert b"200" in await said(sound, ASK)
            await asyncio.sleep(0.05)
            for seconds, left in ((60.0, 2), (0.0, 1)):
                monkeypatch.setattr(connections, "LONGEST_PAUSE_S", seconds)
                for one in list(state.connections):
                    one.close_if_late()  # type: ignore[union-attr]
                await asyncio.sleep(0.05)
                assert len(state.connections) == left
            assert b"200" in await said(sound, ASK)

    serve(tmp_path / "s", dialogue)


def test_the_server_looks_for_them() -> None:
    looked: list[int] = []

    class Noted(Connection):
        def __init__(self) -> None:
            pass

        def close_if_late(self) -> None:
            looked.append(1)

    server = _Server(uvicorn.Config(answer, http=Connection, log_config=None), None)  # type: ignore[arg-type]
    server.config.load()
    server.server_state.connections.add(Noted())
    for counter in range(1, 10 * LOOK_S + 1):
        asyncio.run(server.on_tick(counter))
    assert looked == [1]
