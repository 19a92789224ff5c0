"""Running the service: a unix socket or loopback, signals, and a stop that leaves no request without an answer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from queuewise.errors import InputError
from queuewise.serve.service import DecisionService, log_event

DRAIN_S = 10  # how long requests may take after a stop was asked for
LOOPBACK = ("127.0.0.1", "::1", "localhost")
BACKLOG = 512


def bound_socket(path: Path | None, host: str, port: int, mode: int) -> socket.socket:
    """A socket that listens: at a path, with these permissions, or on loopback."""
    if path is not None:
        return _unix_socket(path, mode)
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


def _unix_socket(path: Path, mode: int) -> socket.socket:
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError("exists and is no socket", where=str(path), hint="choose another path")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink()  # left over by a service that was killed
            else:
                raise InputError("another service listens there", where=str(path), hint="stop it, or choose another path")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise InputError(
            f"cannot listen there: {error.strerror}", where=str(path), hint="check the folder; paths have about 100 bytes"
        ) from None
    finally:
        os.umask(before)
    return bound


def serve_until_stopped(service: DecisionService, bound: socket.socket, path: Path | None) -> None:
    """Answer requests until SIGTERM or SIGINT. SIGHUP reloads the policy."""
    config = uvicorn.Config(
        service.app(), log_config=None, access_log=False, lifespan="off", http="httptools", loop="asyncio", backlog=BACKLOG,
        timeout_graceful_shutdown=DRAIN_S, server_header=False, date_header=False, timeout_keep_alive=75,
    )  # fmt: skip
    server = _Server(config, service)
    try:
        asyncio.run(server.serve(sockets=[bound]))
    finally:
        if path is not None:
            with suppress(FileNotFoundError):
                path.unlink()
        log_event("stopped")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: DecisionService) -> None:
        super().__init__(config)
        self._service = service

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
        """In a thread: requests go on being answered meanwhile."""

        def run() -> None:
            try:
                if callable(load):
                    load()
            except Exception as error:
                log_event("failed", error=str(error))
                self.should_exit = True

        threading.Thread(target=run, daemon=True, name="loading").start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        log_event("stopping")
        await super().shutdown(sockets)
