"""What a call does, apart from how it is sent. Written once; a blocking and an asynchronous session both run it.

A flow is a generator: it yields a ``Request`` and is given the answer, or a ``Pause`` and is resumed after it; what it
returns is the value of the call. ``operation`` and ``listing`` make methods of flows: on a resource of a ``Client``
they return the value, on one of an ``AsyncClient`` something to await.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload
from urllib.parse import quote, urlsplit

import httpx

from assay.client.errors import UnreachableError, api_error

if TYPE_CHECKING:
    from assay.client.sessions import AsyncSession, Session

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 8.0
LONGEST_RETRY_AFTER: Final = 60.0
WORTH_A_RETRY: Final = (429, 503)

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="Session | AsyncSession")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is sent as it is read. ``on_progress`` is told the bytes sent and the bytes in all."""

    file: BinaryIO
    name: str
    on_progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """``repeatable``: doing it twice does no harm. ``into`` takes the body of a good answer piece by piece."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    form: Mapping[str, str] | None = None
    upload: Upload | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    repeatable: bool = True
    into: Callable[[bytes], Any] | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Flow = Generator[Request | Pause, Any, T]


def exchange(request: Request, *, retries: int) -> Flow[Any]:
    """The answer's JSON; None if it has no body. Raises ApiError and UnreachableError, after ``retries`` new tries."""
    attempt = 0
    while True:
        try:
            response: httpx.Response = yield request
        except httpx.RequestError as error:
            # Who is still at it would only get the same work a second time.
            at_work = isinstance(error, httpx.ReadTimeout)
            if at_work or not request.repeatable or attempt >= retries:
                raise UnreachableError(_unreachable(request, error)) from error
            pause = backoff(attempt)
        else:
            if response.is_success:
                return None if request.into or not response.content else _json(response)
            after = _seconds(response.headers.get("Retry-After"))
            hopeless = response.status_code not in WORTH_A_RETRY or (after or 0) > LONGEST_RETRY_AFTER
            if hopeless or not request.repeatable or attempt >= retries:
                raise api_error(response.status_code, _detail(response), retry_after=after)
            # Spread out: those who were refused together must not come back together.
            pause = backoff(attempt) if after is None else after + backoff(0)
        attempt += 1
        yield Pause(pause)


def backoff(attempt: int) -> float:
    """Seconds before the next try: random, and longer on the average with every one."""
    return random.uniform(0.5, 1.0) * min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isascii() and header.isdecimal() else None


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise api_error(
            response.status_code, {"message": "The answer is not JSON; is this an Assay server?"}
        ) from error


def _detail(response: httpx.Response) -> dict[str, Any]:
    """The error object; of an answer that has none (a proxy's), what can be said."""
    try:
        detail = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        detail = None
    plain = {"message": f"The server answered {response.status_code} {response.reason_phrase}."}
    return detail if isinstance(detail, dict) else plain


def _unreachable(request: Request, error: httpx.RequestError) -> str:
    cause = str(error) or type(error).__name__
    return f"{request.method} {request.path} got no answer: {cause.rstrip('.')}."


class Resource(Generic[S]):
    """A group of calls, bound to the session that sends them."""

    def __init__(self, session: S) -> None:
        self._session = session

    def _ask(self, method: str, path: str, **parts: Any) -> Flow[Any]:
        return exchange(Request(method, path, **parts), retries=self._session.retries)

    def _download(
        self, path: str, target: Path | str | BinaryIO, params: Mapping[str, Any] | None = None
    ) -> Flow[None]:
        """Write an answer to a file as it comes. At a path, nothing stands until all of it is there."""
        if isinstance(target, Path | str):
            place = Path(target)
            partial = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.part")
            try:
                with partial.open("wb") as file:
                    yield from self._download(path, file, params)
                partial.replace(place)
            finally:
                partial.unlink(missing_ok=True)
            return
        # A new try would write what came of the first one twice.
        yield from self._ask("GET", path, params=params or {}, into=target.write, repeatable=False)


class operation(Generic[P, T]):
    """Makes a method of a function that returns a flow."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, resource: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, resource: Resource[Session], owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncSession], owner: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: Any) -> Any:
        if resource is None:
            return self

        @wraps(self._flow)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return resource._session.call(self._flow(resource, *args, **kwargs))

        return call


@dataclass(frozen=True, slots=True)
class Pages(Generic[T]):
    """A list that comes in pages; ``request`` asks for the first one."""

    request: Request


class listing(Generic[P, T]):
    """Makes a method of a function that returns ``Pages``: it iterates over the items of all of them."""

    def __init__(self, pages: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._pages = pages
        self.__doc__ = pages.__doc__

    @overload
    def __get__(self, resource: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, resource: Resource[Session], owner: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncSession], owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: Any) -> Any:
        if resource is None:
            return self

        @wraps(self._pages)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return resource._session.items(self._pages(resource, *args, **kwargs).request)

        return call


def following(request: Request, page: Mapping[str, Any]) -> Request | None:
    """The next page. Of its address the parameters count alone: a token goes to no other host than the first."""
    if not page["next"]:
        return None
    return replace(request, params=httpx.QueryParams(urlsplit(page["next"]).query))


def resource_path(*parts: object) -> str:
    return "/api/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None: what was not given is left to the server."""
    return {name: value for name, value in fields.items() if value is not None}
