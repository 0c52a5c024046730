"""The two ways to run a flow: blocking, and with await."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from os import SEEK_END, SEEK_SET
from typing import Any, TypeVar

import anyio
import httpx

from assay.client.config import Target
from assay.client.flows import Flow, Pause, Request, Upload, exchange, following

T = TypeVar("T")
CONNECT_SECONDS = 5.0


class Session:
    def __init__(self, target: Target, *, timeout: float, retries: int) -> None:
        self.retries = retries
        self.http = httpx.Client(**http_options(target, timeout))

    def call(self, flow: Flow[T]) -> T:
        outcome: Any = None
        try:
            while True:
                step = flow.throw(outcome) if isinstance(outcome, Exception) else flow.send(outcome)
                outcome = self._do(step)
        except StopIteration as end:
            value: T = end.value
            return value

    def items(self, request: Request | None) -> Iterator[Any]:
        while request is not None:
            page = self.call(exchange(request, retries=self.retries))
            yield from page["results"]
            request = following(request, page)

    def _do(self, step: Request | Pause) -> Any:
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        try:
            response = self.http.send(http_request(self.http, step), stream=True)
            try:
                if step.into is not None and response.is_success:
                    for block in response.iter_bytes():
                        step.into(block)
                else:
                    response.read()
            finally:
                response.close()
        except httpx.RequestError as error:
            return error
        return response


class AsyncSession:
    def __init__(self, target: Target, *, timeout: float, retries: int) -> None:
        self.retries = retries
        self.http = httpx.AsyncClient(**http_options(target, timeout))

    async def call(self, flow: Flow[T]) -> T:
        outcome: Any = None
        try:
            while True:
                step = flow.throw(outcome) if isinstance(outcome, Exception) else flow.send(outcome)
                outcome = await self._do(step)
        except StopIteration as end:
            value: T = end.value
            return value

    async def items(self, request: Request | None) -> AsyncIterator[Any]:
        while request is not None:
            page = await self.call(exchange(request, retries=self.retries))
            for item in page["results"]:
                yield item
            request = following(request, page)

    async def _do(self, step: Request | Pause) -> Any:
        if isinstance(step, Pause):
            return await anyio.sleep(step.seconds)
        try:
            response = await self.http.send(http_request(self.http, step), stream=True)
            try:
                if step.into is not None and response.is_success:
                    async for block in response.aiter_bytes():
                        step.into(block)
                else:
                    await response.aread()
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            return error
        return response


def http_options(target: Target, timeout: float) -> dict[str, Any]:
    """Redirects are not followed: a token goes to the server it was given for."""
    return {
        "base_url": target.url,
        "headers": {"Authorization": f"Bearer {target.token}", "Accept": "application/json, */*"},
        "timeout": httpx.Timeout(timeout, connect=CONNECT_SECONDS),
        "follow_redirects": False,
        # As many connections as the caller has calls under way.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=None),
    }


def http_request(http: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    options: dict[str, Any] = {}
    if request.timeout is not None:
        options["timeout"] = httpx.Timeout(request.timeout, connect=CONNECT_SECONDS)
    if request.upload is not None:
        options["files"] = {"file": (request.upload.name, Meter(request.upload))}
    return http.build_request(
        request.method,
        request.path,
        params=request.params,
        json=request.json,
        data=request.form,
        headers=request.headers,
        **options,
    )


class Meter:
    """A file from its beginning on, that tells how much of it was read."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._total = upload.file.seek(0, SEEK_END)
        upload.file.seek(0)

    def read(self, size: int = -1) -> bytes:
        block = self._upload.file.read(size)
        if self._upload.on_progress is not None:
            self._upload.on_progress(self.tell(), self._total)
        return block

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return self._upload.file.seek(offset, whence)

    def tell(self) -> int:
        return self._upload.file.tell()
