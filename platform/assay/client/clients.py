"""``Client`` and ``AsyncClient``: the same calls, the one blocking, the other to be awaited."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from assay.client.comparisons import Comparisons
from assay.client.config import Target, target
from assay.client.encodings import Encodings
from assay.client.evaluations import Evaluations
from assay.client.exports import Exports
from assay.client.flows import S
from assay.client.jobs import Jobs
from assay.client.models import Models, ScoreRequests, Workers
from assay.client.pools import Pools
from assay.client.scoring import Scoring
from assay.client.sessions import AsyncSession, Session
from assay.client.sets import Sets
from assay.client.thresholds import ThresholdAdvice

TIMEOUT: Final = 150.0  # longer than a server lets a request take, so that its words come first
RETRIES: Final = 3


class Api(Scoring[S]):
    """Every call there is; what belongs to one resource stands under its name."""

    def __init__(self, session: S, address: Target) -> None:
        super().__init__(session)
        self.url = address.url
        self.models = Models(session)
        self.document_sets = Sets(session, "document-sets", "documents")
        self.query_sets = Sets(session, "query-sets", "queries")
        self.judgements = Sets(session, "judgements", "rows")
        self.runs = Sets(session, "runs", "entries")
        self.encodings = Encodings(session)
        self.jobs = Jobs(session)
        self.exports = Exports(session)
        self.comparisons = Comparisons(session)
        self.evaluations = Evaluations(session)
        self.pools = Pools(session)
        self.threshold_advice = ThresholdAdvice(session)
        self.workers = Workers(session)
        self.score_requests = ScoreRequests(session)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class Client(Api[Session]):
    """Address and token: as given, else from ASSAY_URL and ASSAY_TOKEN, else from the file of ``assay login``.

    ``timeout`` in seconds bounds the wait for each part of an answer. What may be repeated is, up to ``retries`` times,
    after a lost connection, a 429 or a 503. It may be shared by threads. Use it in ``with``, or close it.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = TIMEOUT, retries: int = RETRIES
    ) -> None:
        address = target(url, token)
        super().__init__(Session(address, timeout=timeout, retries=retries), address)

    def close(self) -> None:
        self._session.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Api[AsyncSession]):
    """As ``Client``; every call is awaited, every list is iterated with ``async for``. Under asyncio or trio."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = TIMEOUT, retries: int = RETRIES
    ) -> None:
        address = target(url, token)
        super().__init__(AsyncSession(address, timeout=timeout, retries=retries), address)

    async def aclose(self) -> None:
        await self._session.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
