"""Which worker answers a synchronous request: the one whose caches know its documents, unless it is clearly busier.

A large request whose pairs do not depend on each other is split over all workers that have the same model in force.
Nobody ready: the model is asked for, and its cold policy says whether the caller waits.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from django.conf import settings
from django.db import Error as AnyDatabaseError

from assay.errors import AssayError
from assay.kept import Kept
from scoring.affinity import Digests, Weights, digests, preferred, shares, weights
from scoring.dispatch import Taken, Target, loads, model_queue, no_worker, worker_queue
from scoring.gathering import Part
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncRequest
from scoring.scatter import share_of
from scoring.selectors.placements import ReadyPlacement, placement_outlook, placements_ready
from scoring.selectors.workers import workers_alive, workers_answering, workers_returning
from scoring.services.placements import model_demand

SCATTER_DOCUMENTS: Final = 64  # a part should be worth a message of its own
CLEARLY_MORE: Final = 64  # pairs; fewer are not worth leaving a warm cache
DOCUMENT_SIZE: Final = 32  # what a document costs beside its length, in characters
NOBODY_KNOWS_SECONDS: Final = 10

ready: Final = Kept(placements_ready)
answering: Final = Kept[None, dict[uuid.UUID, uuid.UUID]](lambda _: workers_answering())


@dataclass(frozen=True, slots=True)
class ModelRouter:
    """Routes the parts of one request for ``model``."""

    model: ScoringModel

    def plan(self, call: SyncRequest, *, whole: bool = False) -> list[Part]:
        """Where ``call`` goes at first, in one part or several.

        Raises AssayError 503 ``no_worker``, ``model_not_loaded`` (cold, and not to be waited for),
        ``model_load_failed``.
        """
        replicas = ready.get(self.model) or ready.get(self.model, afresh=True)
        if not replicas:
            return [Part(call, self._cold(), cold=True)]
        if not whole and (parts := self._split(call, replicas)):
            return parts
        return [Part(call, self._best(call, replicas))]

    def elsewhere(self, part: Part) -> None:
        """Another worker; else whoever of those asked looks into the model's queue; else as if the request were new."""
        replicas = ready.get(self.model, afresh=True)
        others = [replica for replica in replicas if _queue(replica) not in part.asked]
        if others:
            part.target = self._best(part.call, others)
        elif replicas:
            part.target = Target(queue=model_queue(self.model.pk))
        else:
            part.target, part.cold = self._cold(), True

    def cold_over(self) -> bool:
        if ready.get(self.model):
            return True
        self._hopeful()
        return False

    def alive(self, taken: Taken) -> bool:
        try:
            return str(answering.get(None).get(uuid.UUID(taken.worker_id))) == taken.boot_id
        except AnyDatabaseError:
            return True  # nobody can tell; the deadline ends it

    def _best(self, call: SyncRequest, replicas: Sequence[ReadyPlacement]) -> Target:
        if len(replicas) == 1:
            return Target(queue=_queue(replicas[0]))
        # Workers keep embeddings of documents; of a generative model, the beginnings of its prompts.
        queries_first = self.model.kind == ModelKind.GENERATIVE and not call.options.item_first
        queries, documents = call.query_ids or call.queries, call.document_ids or call.documents
        texts = (queries if queries_first else documents) or documents  # a text by itself is a document
        if ranking := call.options.ranking:  # whoever has the set's encodings, however busy: others would make them
            return Target(queue=_queue(replicas[preferred(_weights(digests([ranking.document_set]), replicas))[0]]))
        first, second = (_queue(replicas[place]) for place in preferred(_weights(digests(texts), replicas))[:2])
        return Target(queue=second if _clearly_more(*loads([first, second])) else first)

    def _split(self, call: SyncRequest, replicas: Sequence[ReadyPlacement]) -> list[Part]:
        """One part for each of the workers that are worth it; none, if the request is better left whole."""
        whole = self.model.kind == ModelKind.LISTWISE or call.pairing != "matrix" or call.options.ranking
        if whole or len(replicas) < 2:
            return []
        documents = call.document_ids or call.documents
        content, first, which = np.unique(digests(documents), return_index=True, return_inverse=True)
        workers = self._sharers(content, replicas)
        if len(workers) < 2:
            return []
        sizes = np.array([len(documents[place]) + DOCUMENT_SIZE for place in first])
        # Equal documents stay together: they are read once.
        owner = shares(_weights(content, workers), sizes)[which]  # [N]
        places = [np.flatnonzero(owner == worker).tolist() for worker in range(len(workers))]
        return [
            Part(share_of(call, part), Target(queue=_queue(worker)), documents=part)
            for worker, part in zip(workers, places, strict=True)
            if part
        ]

    def _sharers(self, content: Digests, replicas: Sequence[ReadyPlacement]) -> list[ReadyPlacement]:
        """Workers to split between: of one version, none clearly busier than another, as many as the work is worth."""
        most = len(content) // SCATTER_DOCUMENTS
        if most < 2:
            return []
        order = [replicas[place] for place in preferred(_weights(content, replicas))]
        alike = [replica for replica in order if replica.version == order[0].version]
        busy = loads([_queue(replica) for replica in alike])
        return [one for one, load in zip(alike, busy, strict=True) if not _clearly_more(load, min(busy))][:most]

    def _cold(self) -> Target:
        """Ask for the model; the place to wait for it, if its policy is to wait."""
        queue = model_queue(self.model.pk)
        self._somebody()
        model_demand(model=self.model)
        if self.model.waits_when_cold:
            self._hopeful()
            return Target(queue=queue, patience=settings.COLD_WAIT_SECONDS, most=settings.COLD_WAITERS)
        outlook = placement_outlook(self.model)
        raise AssayError(
            "model_not_loaded",
            f"{outlook.reason} Its requests do not wait for that; send this one again then.",
            status=503,
            retry_after=math.ceil(outlook.seconds or NOBODY_KNOWS_SECONDS),
            extra={"model": self.model.name, "queue": queue},
        )

    def _somebody(self) -> None:
        """Raises AssayError 503 ``no_worker`` when no worker is there, nor expected back."""
        if not (workers_alive().exists() or workers_returning().exists()):
            raise no_worker(self.model.name, "no worker is running", queue=model_queue(self.model.pk))

    def _hopeful(self) -> None:
        """Raises AssayError 503 when waiting is in vain: ``no_worker``, or ``model_load_failed`` for a model that fits
        nowhere, or fails to load."""
        outlook = placement_outlook(self.model)
        if outlook.seconds is None and not outlook.coming:
            self._somebody()
            raise AssayError(
                "model_load_failed",
                outlook.reason,
                status=503,
                retry_after=NOBODY_KNOWS_SECONDS,
                extra={"model": self.model.name, "queue": model_queue(self.model.pk)},
            )


def _queue(replica: ReadyPlacement) -> str:
    return worker_queue(replica.worker_id)


def _weights(content: Digests, replicas: Sequence[ReadyPlacement]) -> Weights:
    return weights(content, [str(replica.worker_id) for replica in replicas])


def _clearly_more(load: int, other: int) -> bool:
    return load > 2 * other + CLEARLY_MORE
