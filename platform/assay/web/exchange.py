"""One HTTP request over ASGI and what is sent for it, from the loop or from the thread that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Final, cast

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from assay import metrics
from assay.api.errors import json_error
from assay.callers import Caller
from assay.errors import AssayError
from assay.health import draining
from assay.web.messages import Receive, Scope, Send, announced_length, header_pairs

SENT_TOGETHER: Final = 1 << 16  # pieces of a stream are joined to this size


class Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.path, self.method = str(scope["path"]), str(scope["method"])
        self.length = announced_length(scope)
        self.caller = Caller()
        self._begun = self._answered = False
        self._loop = asyncio.get_running_loop()

    async def answer(self, response: HttpResponse) -> None:
        await self._start(response)
        await self._piece(response.content, more=False)

    async def refuse(self, error: AssayError) -> None:
        metrics.http_refused.labels(error.code).inc()
        await self.answer(json_error(error, None))

    async def dismiss(self, error: AssayError) -> None:
        """Nobody may wait here any longer: tell the thread, and the client, unless its answer has begun."""
        await asyncio.to_thread(self.caller.leave)
        if not self._begun:
            await self.refuse(error)

    async def follow(self, response: StreamingHttpResponse) -> None:
        """Send an endless stream piece by piece. Being cancelled ends it in order."""
        await self._start(response)
        try:
            async for piece in response:
                await self._piece(piece, more=True)
        except asyncio.CancelledError:
            if not draining.is_set():
                raise
        await self._piece(b"", more=False)

    async def gone(self, *, lane: str) -> None:
        """Return when the client hangs up, having told the thread. To be awaited only once the body has been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        if self._answered:  # the end of every exchange is told as a disconnect too
            return
        metrics.http_disconnects.labels(lane).inc()
        await asyncio.to_thread(self.caller.leave)

    def send_from_thread(self, response: StreamingHttpResponse) -> None:
        """Send a file or an export, at the pace at which the client reads it."""
        self._on_loop(self._start(response))
        for pieces in joined(cast("Iterable[bytes]", response)) if self.method != "HEAD" else ():
            if self.caller.left:
                return
            self._on_loop(self._piece(pieces, more=True))
        self._on_loop(self._piece(b"", more=False))

    def _on_loop(self, sent: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(sent, self._loop).result()

    async def _start(self, response: HttpResponseBase) -> None:
        self._begun = True
        headers = header_pairs(response)
        if draining.is_set() and self.scope["http_version"].startswith("1"):
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})

    async def _piece(self, body: bytes, *, more: bool) -> None:
        body = b"" if self.method == "HEAD" else body
        self._answered = not more
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A hop to the loop and back is dear beside a row of an export."""
    together: list[bytes] = []
    size = 0
    for piece in pieces:
        together.append(piece)
        size += len(piece)
        if size >= SENT_TOGETHER:
            yield b"".join(together)
            together, size = [], 0
    yield b"".join(together)
