"""Connections of the guarded client: to checked addresses only, never beyond a request's end, and kept for a while."""

from __future__ import annotations

import ipaddress
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import certifi
import httpcore

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

IDLE_SECONDS: Final = 15.0
MOST_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a connection is with: only who asks for the same, trusting the same certificates, may have it again."""

    scheme: str
    host: str
    port: int
    ca_file: str


class Connection:
    """With one of a name's checked addresses; for one request at a time."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._network = _Network()
        self._http = httpcore.HTTPConnection(
            self._url("/").origin, tls_context(peer.ca_file), IDLE_SECONDS, network_backend=self._network
        )

    @property
    def address(self) -> Address | None:
        """None before the first request."""
        return self._network.address

    @property
    def is_usable(self) -> bool:
        """Idle, not for long, and not closed by the other side as far as is known."""
        return self._http.is_idle() and not self._http.has_expired()

    @contextmanager
    def ask(
        self,
        method: str,
        path: str,
        *,
        addresses: Sequence[Address],
        headers: Mapping[str, str],
        content: bytes,
        end: float,
    ) -> Iterator[httpcore.Response]:
        """``addresses``: to connect to, the first that answers; ``end``: time.monotonic(). Raises httpcore's errors."""
        self._network.addresses, self._network.end = addresses, end
        sent = list(headers.items())
        with self._http.stream(method, self._url(path), headers=sent, content=content) as response:
            yield response

    def close(self) -> None:
        self._http.close()

    def _url(self, path: str) -> httpcore.URL:
        return httpcore.URL(scheme=self.peer.scheme, host=self.peer.host, port=self.peer.port, target=path)


class Kept:
    """Thread-safe. Idle connections, the one that was used last first."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def take(self, peer: Peer, addresses: Sequence[Address]) -> Connection | None:
        """One with ``peer`` at an address that the name still has; those at others are closed."""
        with self._lock:
            for connection in [each for each in self._idle if each.peer == peer]:
                self._idle.remove(connection)
                if connection.is_usable and connection.address in addresses:
                    return connection
                connection.close()
        return None

    def put(self, connection: Connection) -> None:
        """Keeps it if it can be used again."""
        with self._lock:
            self._idle.insert(0, connection)
            useless = [each for each in self._idle if not each.is_usable]
            self._idle = [each for each in self._idle if each not in useless]
            useless += self._idle[self._most :]
            del self._idle[self._most :]
        for each in useless:
            each.close()

    def __len__(self) -> int:
        with self._lock:
            return len(self._idle)


@lru_cache(maxsize=4)
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Reading the certificates takes tens of milliseconds, so a context is kept."""
    context = ssl.create_default_context(cafile=certifi.where())
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


class _Network(httpcore.NetworkBackend):
    """Connects to ``addresses`` only, and lets nothing last beyond ``end``; both are set anew for each request."""

    def __init__(self) -> None:
        self.addresses: Sequence[Address] = ()
        self.end = 0.0
        self.address: Address | None = None
        self._sockets = httpcore.SyncBackend()

    def left(self) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("The time is up")
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        for address in self.addresses[:-1]:
            try:
                return self._connected(address, port, self.left() / 2)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue  # the host has others
        return self._connected(self.addresses[-1], port, self.left())

    def _connected(self, address: Address, port: int, seconds: float) -> httpcore.NetworkStream:
        stream = self._sockets.connect_tcp(str(address), port, seconds)
        self.address = address
        return _Stream(stream, self.left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._left()), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
