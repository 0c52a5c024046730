"""Document sets that people have encoded ahead. In a thread of its own, batch after batch, behind all other work; what
comes of it lies in the engine's cache by content, where jobs and requests find it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from scoring.models import Document, SetEncoding, Worker
from scoring.selectors.encodings import kept_on_disk
from scoring.services.encodings import (
    encoding_claim,
    encoding_fail,
    encoding_finish,
    encoding_progress,
    encodings_to_delete,
)
from scoring.states import HELD_STATES
from workers.engine.errors import EngineError
from workers.engine.role import Role
from workers.engine.types import EncodingRequest, Priority
from workers.loop import Loop
from workers.set_ranking import MOST_DOCUMENTS

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine
    from workers.engine.caches.cached_encoding import CacheKey
    from workers.host import Host

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0  # wake-ups may get lost
DOCUMENTS_AT_ONCE: Final = 128  # so many are encoded before anybody looks whether it is still wanted
BATCH_SECONDS: Final = 600.0


class Encodings:
    def __init__(self, *, engine: Engine, host: Host, worker: Worker) -> None:
        self._engine = engine
        self._host = host
        self._worker = worker
        self._loop = Loop("encodings", self._step, seconds=LOOK_SECONDS)
        self.start, self.stop, self.wake = self._loop.start, self._loop.stop, self._loop.wake

    def _step(self) -> bool:
        for unwanted in encodings_to_delete(worker=self._worker):
            self._delete(unwanted)
        if self._worker.state in HELD_STATES:
            return False
        encoding = encoding_claim(worker=self._worker)
        if encoding is None:
            return False
        try:
            whole = self._encode(encoding)
        except EngineError as error:
            encoding_fail(encoding=encoding, worker=self._worker, error=str(error))
        except Exception as error:  # whatever a text does to a tokenizer: this encoding fails, the thread goes on
            logger.exception("encoding %s failed", encoding.pk)
            encoding_fail(encoding=encoding, worker=self._worker, error=f"{type(error).__name__}: {error}")
        else:
            if whole:
                encoding_finish(encoding=encoding, worker=self._worker)
        return True

    def _encode(self, encoding: SetEncoding) -> bool:
        """Returns whether all was done; not when it was cancelled, or the worker stops: the reconciler says so then."""
        done = tokens = size = 0
        on_disk = kept_on_disk(encoding.model)
        texts_left = _texts(encoding)
        while texts := tuple(islice(texts_left, DOCUMENTS_AT_ONCE)):
            output = self._ask(encoding, texts)
            self._engine.encodings.settle()  # the disk drops what it is too far behind with
            done, tokens, size = done + len(texts), tokens + output.prompt_tokens, size + output.bytes
            figures: dict[str, Any] = {"documents_done": done, "tokens": tokens, "size": size}
            key = key_to_json(output.key)
            if not encoding_progress(encoding=encoding, key=key, on_disk=on_disk, **figures) or self._loop.stopping:
                return False
        if done <= MOST_DOCUMENTS:
            self._pack(encoding)
        return True

    def _pack(self, encoding: SetEncoding) -> None:
        """So that requests over the whole set are answered at once too, where there is room for that."""
        try:
            self._ask(encoding, tuple(_texts(encoding)), pack_as=str(encoding.document_set_id))
        except EngineError as error:
            if error.code != "packed_too_large":
                raise

    def _ask(self, encoding: SetEncoding, texts: tuple[str, ...], pack_as: str = "") -> Any:
        request = EncodingRequest(encoding.model.name, texts, priority=Priority.BATCH, pack_as=pack_as)
        return self._host.pre_encode(encoding.model_id, request).result(BATCH_SECONDS)

    def _delete(self, encoding: SetEncoding) -> None:
        key = key_from_json(encoding.key)
        self._engine.encodings.forget(key, _texts(encoding), packed=str(encoding.document_set_id))
        self._engine.encodings.settle()
        encoding.delete()


def _texts(encoding: SetEncoding) -> Iterator[str]:
    rows = Document.objects.filter(document_set=encoding.document_set_id).order_by("position")
    return rows.values_list("text", flat=True).iterator()


def key_to_json(key: CacheKey) -> dict[str, Any]:
    return {"identity": key.identity, "device": key.device, "parts": sorted(key.parts), "limit": key.limit}


def key_from_json(given: dict[str, Any]) -> CacheKey:
    from workers.engine.caches.cached_encoding import CacheKey
    from workers.engine.pooling.encoding import Part

    parts = frozenset(Part(part) for part in given["parts"])
    return CacheKey(given["identity"], given["device"], Role.DOCUMENT, parts, given["limit"], b"")
