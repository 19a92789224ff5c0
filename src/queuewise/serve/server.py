"""Running the service: a unix socket or loopback, signals, and a stop that leaves no request without an answer."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from queuewise.errors import InputError
from queuewise.serve.connections import Connection
from queuewise.serve.service import DecisionService, log_event
from queuewise.serve.unix_sockets import bind_unix_socket, remove_own_socket

DRAIN_S = 10  # how long requests may take after a stop was asked for
LOOPBACK = ("127.0.0.1", "::1", "localhost")
BACKLOG = 512
LOOK_S = 5  # time between two looks for clients that keep it waiting


def bound_socket(path: Path | None, host: str, port: int, mode: int) -> socket.socket:
    """A socket that listens: at a path, with these permissions, or on loopback."""
    if path is not None:
        return bind_unix_socket(path, mode)
    if host not in LOOPBACK:
        raise InputError(f"host {host} is not loopback", hint=f"use one of {', '.join(LOOPBACK)}, or a unix socket")
    if not 0 <= port <= 65_535:
        raise InputError(f"there is no port {port}", hint="give a number from 1 to 65535, or 0 for any that is free")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port") from None
    return bound


def serve_until_stopped(service: DecisionService, bound: socket.socket, path: Path | None) -> bool:
    """Answer requests until SIGTERM or SIGINT. SIGHUP reloads the policy. Returns whether there ever was a policy."""
    config = uvicorn.Config(
        service.app(), log_config=None, access_log=False, lifespan="off", http=Connection, loop="asyncio", backlog=BACKLOG,
        timeout_graceful_shutdown=DRAIN_S, server_header=False, date_header=False, timeout_keep_alive=75,
        log_level="critical",  # the service answers and reports errors itself; requests that a stop cuts off are none
    )  # fmt: skip
    server = _Server(config, service)
    own = None if path is None else path.stat().st_ino
    try:
        asyncio.run(server.serve(sockets=[bound]))
    finally:
        if path is not None and own is not None:
            remove_own_socket(path, own)
        log_event("stopped")
    return not server.failed


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: DecisionService) -> None:
        super().__init__(config)
        self._service = service
        self.failed = False  # the policy could not be loaded at all

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """`startup` does: a stop that was asked for is no failure."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._load, self._service.reload)
        self._load(self._service.load)

    def _load(self, load: object) -> None:
        """In a thread: requests go on being answered meanwhile. Without a policy there is nothing to serve."""

        def run() -> None:
            try:
                if callable(load):
                    load()
            except Exception as error:
                log_event("failed", error=f"{type(error).__name__}: {error}")
                self.failed = self.should_exit = True

        threading.Thread(target=run, daemon=True, name="loading").start()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % (10 * LOOK_S) == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.close_if_late()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        log_event("stopping")
        await super().shutdown(sockets)
