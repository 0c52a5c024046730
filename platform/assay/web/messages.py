"""ASGI's messages as Django's synchronous side wants them, and back: environ, body, headers."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import IO, Any

from django.http.response import HttpResponseBase

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

UNPREFIXED = {b"content-type": "CONTENT_TYPE", b"content-length": "CONTENT_LENGTH"}


def announced_length(scope: Scope) -> int:
    """0 where no length is given; then Django reads no body, and the middleware refuses one that comes."""
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(value) if value.isdigit() and len(value) < 19 else 0


async def body_read(receive: Receive, length: int, *, whole: bool) -> IO[bytes] | None:
    """What a thread reads: all of the body if ``whole`` or if it came at once, else a stream that waits for the rest.

    None: the client left before.
    """
    if not length:
        return io.BytesIO()
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return io.BytesIO(b"".join(parts))
        if not whole:
            return io.BufferedReader(ComingBody(receive, b"".join(parts)), 1 << 16)


class ComingBody(io.RawIOBase):
    """The rest of a body, read by a thread while it comes."""

    def __init__(self, receive: Receive, begun: bytes) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._part = memoryview(begun)
        self._more = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._part and self._more:
            message = asyncio.run_coroutine_threadsafe(_received(self._receive), self._loop).result()
            if message["type"] == "http.disconnect":
                raise OSError("the client left before its body had come")
            self._part, self._more = memoryview(message.get("body", b"")), bool(message.get("more_body"))
        count = min(len(buffer), len(self._part))
        buffer[:count] = self._part[:count]
        self._part = self._part[count:]
        return count


async def _received(receive: Receive) -> Message:
    return await receive()


def environ_of(scope: Scope, body: IO[bytes]) -> dict[str, Any]:
    """The WSGI environ (PEP 3333) of an HTTP request."""
    client, server = scope.get("client") or ("", 0), scope.get("server") or ("localhost", 80)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode("utf-8", "surrogateescape").decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        if b"_" in name:  # X_Request_Id would pass for X-Request-Id
            continue
        key = UNPREFIXED.get(name) or "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        text = value.decode("latin-1")
        environ[key] = f"{environ[key]}{'; ' if name == b'cookie' else ','}{text}" if key in environ else text
    return environ


def header_pairs(response: HttpResponseBase) -> list[tuple[bytes, bytes]]:
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    cookies = response.cookies.values()
    return pairs + [(b"set-cookie", cookie.output(header="").strip().encode("latin-1")) for cookie in cookies]
