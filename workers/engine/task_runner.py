"""A model's way from request to scores: what the engine asks of every kind of model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workers.engine.errors import EngineError
from workers.engine.model_types import ModelInfo
from workers.engine.types import PoolingRequest, PoolingTask, ScoringRequest

if TYPE_CHECKING:
    from workers.engine.sequence import Sequence, Work


CHARACTERS_PER_TOKEN = 3  # a cautious guess, only to bound what waits


class TaskRunner(ABC):
    """``run`` is for the runner thread, the rest for thread pools. ``retired``: replaced or unloaded, what still runs
    fills no cache any more."""

    tasks: Collection[PoolingTask] = ()  # what it does with single texts
    scores_pairs = True
    takes_instruction = False
    sample_tail = ""  # what a text must end with to give anything

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        self.retired = False

    @abstractmethod
    def estimate(self, request: ScoringRequest) -> int:
        """About how many tokens the request will put into the queue."""

    def estimate_pooling(self, request: PoolingRequest) -> int:
        return sum(min(self.info.max_length, 2 + len(text) // CHARACTERS_PER_TOKEN) for text in request.inputs)

    def admit(self, request: ScoringRequest | PoolingRequest) -> int:
        """Refuse what this kind of model cannot do, else the estimate."""
        if isinstance(request, PoolingRequest):
            if request.task not in self.tasks:
                able = f"it can {', '.join(sorted(self.tasks))}" if self.tasks else "it scores pairs only"
                raise EngineError(
                    "unsupported_task",
                    f"The model '{self.info.name}' ({self.info.kind}) cannot {request.task}; {able}.",
                )
            return self.estimate_pooling(request)
        if not self.scores_pairs:
            raise EngineError(
                "unsupported_task",
                f"The model '{self.info.name}' ({self.info.kind}) does not score a query with documents; "
                f"it can {', '.join(sorted(self.tasks))}.",
            )
        if request.options.instruction and not self.takes_instruction:
            raise EngineError(
                "no_instruction",
                f"The model '{self.info.name}' has no place for an instruction. Leave it out, or write it into the "
                "query.",
            )
        return self.estimate(request)

    @abstractmethod
    def prepare(self, work: Work) -> None:
        """Fill ``work.pending`` with what must run and ``work.results`` with where it goes."""

    @abstractmethod
    def run(self, sequences: list[Sequence]) -> None:
        """One micro-batch of this model, of any number of requests."""

    @abstractmethod
    def finish(self, work: Work) -> Any:
        """The answer: ``ScoringOutput`` or ``PoolingOutput``, after the request it is for."""

    def release(self, work: Work) -> None:  # noqa: B027 - most kinds hold nothing between micro-batches
        """Give back what the request still holds; called once for every end it may have."""

    def clear(self) -> None:  # noqa: B027
        """Give back what all requests hold: the weights are gone."""

    def set_gpu_maxsim(self, wanted: bool) -> None:
        self.info = replace(self.info, gpu_maxsim=wanted)

    @property
    def reserved_bytes(self) -> int:
        return 0
