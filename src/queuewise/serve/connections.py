"""Connections of the service that clients cannot use up: bounded in number, in the size of a head, and in how long clients keep it waiting.

Everybody on a machine can connect to a port on loopback, and is asked for the token only after the head of a request.
"""

from __future__ import annotations

import asyncio
import resource

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_CONNECTIONS = 1000  # and at most half of the files that the process may open
MOST_HEAD_BYTES = 64 * 2**10  # request line and headers, but for what comes with their end
LONGEST_PAUSE_S = 30.0  # for a request to arrive, or for an answer to be taken
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def most_connections() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(files // 2, 1))


class Connection(HttpToolsProtocol):
    """One connection. Times are those of the event loop."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._used_at = self.loop.time()
        self._arriving_since: float | None = self._used_at
        self._stuck_since: float | None = None  # the client does not read its answer
        self._in_head, self._head_bytes = True, 0
        if len(self.connections) > most_connections():
            self._make_room()

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client; this one if all others are being answered."""
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self and not one.is_answered]
        victim = min(others, key=lambda one: one._used_at, default=self)
        self.connections.discard(victim)
        victim.transport.abort()

    @property
    def is_answered(self) -> bool:
        """Whether the service is at work for it, and nothing is awaited from the client."""
        if self._arriving_since is not None or self._stuck_since is not None:
            return False
        return self.cycle is not None and not self.cycle.response_complete

    def close_if_late(self) -> None:
        """Close it if its client has kept the service waiting for too long."""
        since = [time for time in (self._arriving_since, self._stuck_since) if time is not None]
        if since and self.loop.time() - min(since) > LONGEST_PAUSE_S:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._used_at = self._arriving_since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving_since = None
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck_since = None
