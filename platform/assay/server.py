"""The application of a web process: ASGI outside, Django's synchronous handler in lanes of threads inside.

What the loop does itself is what no thread should be held for: ``/livez``, reading the body of a request that scores,
seeing that a client hung up, event streams, and refusing while the process drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final, cast

from django.conf import settings
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve, set_script_prefix

from assay import metrics
from assay.callers import CALLER
from assay.errors import AssayError
from assay.health import draining
from assay.lanes import Lane, Lanes
from assay.web.exchange import Exchange
from assay.web.messages import Receive, Scope, Send, body_read, environ_of
from assay.web.middleware import ProbeMiddleware

LIVE: Final = "/livez"
COMES_AT_ONCE: Final = 1 << 16  # a body larger than this may come slowly
HELD_BYTES: Final = 1 << 30  # bodies of requests that score, read and not yet answered
MOST_STREAMS: Final = 1000
RETRY_SECONDS: Final = 1
LAST_SECONDS: Final = 2  # until the last refusals are sent and their threads have ended


class Application:
    """One process's application. Its state lives on the event loop and is touched nowhere else."""

    def __init__(self, handler: WSGIHandler) -> None:
        self._handler = handler
        self._lanes = Lanes(settings.WEB_THREADS)
        self._exchanges: set[Exchange] = set()
        self._streams: set[asyncio.Task[None]] = set()
        self._held_bytes = 0
        self._drain: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            exchange = Exchange(scope, receive, send)
            self._exchanges.add(exchange)
            try:
                await self._answer(exchange)
            finally:
                self._exchanges.discard(exchange)

    # From the start to the end of the process

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        # The server's own handler stays with SIGINT, which ends the process once it is drained.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._begin_drain)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _begin_drain(self) -> None:
        if self._drain is None:
            draining.set()
            metrics.draining.set(1)
            self._drain = asyncio.create_task(self._end())

    async def _end(self) -> None:
        """Let what is in flight end, DRAIN_SECONDS at the most; refuse what is left; then end the process."""
        for stream in self._streams:
            stream.cancel()
        await self._ended(settings.DRAIN_SECONDS)
        for exchange in list(self._exchanges):
            await exchange.dismiss(stopping())
        await self._ended(LAST_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    async def _ended(self, seconds: float) -> None:
        """Wait until nothing is in flight, for ``seconds`` at the most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._exchanges:
                    await asyncio.sleep(0.05)

    # One request

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.path == LIVE and exchange.method in ("GET", "HEAD"):
            await exchange.answer(HttpResponse('{"status": "ok"}', content_type="application/json"))
            return
        lane = self._lane(exchange)
        try:
            if draining.is_set() and lane is not self._lanes.probes:
                raise stopping()
            with lane.entered(), self._held(exchange.length if lane is self._lanes.waiting else 0):
                stream = await self._worked(exchange, lane)
            if stream is not None:
                await self._streamed(exchange, stream)
        except AssayError as error:
            await exchange.refuse(error)

    def _lane(self, exchange: Exchange) -> Lane:
        if exchange.path in ProbeMiddleware.probes:
            return self._lanes.probes
        if exchange.length > settings.MAX_BODY_BYTES:
            return self._lanes.uploads
        if exchange.method == "POST" and waits_for_model(exchange.path):
            return self._lanes.waiting
        return self._lanes.uploads if exchange.length > COMES_AT_ONCE else self._lanes.pages

    @contextlib.contextmanager
    def _held(self, size: int) -> Iterator[None]:
        if size and self._held_bytes + size > HELD_BYTES:
            message = "The bodies of the requests in hand fill their share of memory; send this one later."
            raise AssayError("overloaded", message, status=429, retry_after=RETRY_SECONDS)
        self._held_bytes += size
        try:
            yield
        finally:
            self._held_bytes -= size

    async def _worked(self, exchange: Exchange, lane: Lane) -> StreamingHttpResponse | None:
        """Have a thread of ``lane`` answer. What is returned is a stream that no thread is needed for."""
        body = await body_read(exchange.receive, exchange.length, whole=lane is self._lanes.waiting)
        if body is None:
            metrics.http_disconnects.labels(lane.name).inc()
            return None
        environ = {**environ_of(exchange.scope, body), CALLER: exchange.caller}
        # While a thread reads the body, it is the one who learns that the client left.
        watch = asyncio.create_task(exchange.gone(lane=lane.name)) if body.seekable() else None
        try:
            response = await lane.run(partial(self._respond, exchange, environ))
            if isinstance(response, StreamingHttpResponse):
                return response
            if response is not None and not exchange.caller.left:
                await exchange.answer(cast(HttpResponse, response))
            return None
        finally:
            if watch is not None:
                watch.cancel()

    async def _streamed(self, exchange: Exchange, response: StreamingHttpResponse) -> None:
        if len(self._streams) >= MOST_STREAMS:
            message = f"{MOST_STREAMS} event streams are open in this process, its limit; ask again later."
            raise AssayError("overloaded", message, status=429, retry_after=RETRY_SECONDS)
        stream = asyncio.create_task(exchange.follow(response))
        gone = asyncio.create_task(exchange.gone(lane="streams"))
        self._streams.add(stream)
        metrics.lane_requests.labels("streams").inc()
        try:
            await asyncio.wait((stream, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            metrics.lane_requests.labels("streams").dec()
            self._streams.discard(stream)
            gone.cancel()
            stream.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stream

    def _respond(self, exchange: Exchange, environ: dict[str, Any]) -> HttpResponseBase | None:
        """In a thread: the response; None where it was sent from here, or nobody waits for it any more."""
        if exchange.caller.left:
            return None
        set_script_prefix("/")
        signals.request_started.send(sender=WSGIHandler, environ=environ)
        response = self._handler.get_response(self._handler.request_class(environ))
        response._handler_class = WSGIHandler  # type: ignore[attr-defined]  # sends request_finished when it is closed
        if not isinstance(response, StreamingHttpResponse):
            response.close()
        elif response.is_async:
            signals.request_finished.send(sender=WSGIHandler)  # from here on it needs neither thread nor connection
        else:
            with contextlib.closing(response):
                exchange.send_from_thread(response)
            return None
        return response


def stopping() -> AssayError:
    message = "This process stops; send the request again."
    return AssayError("shutting_down", message, status=503, retry_after=RETRY_SECONDS)


@lru_cache(maxsize=1024)
def waits_for_model(path: str) -> bool:
    """Whether the view at ``path`` says that its requests wait for workers."""
    try:
        view = resolve(path).func
    except Resolver404:
        return False
    view_class = getattr(view, "cls", None) or getattr(view, "view_class", None)  # as DRF and as Django call it
    return bool(getattr(view_class, "waits_for_model", False))
