"""A model's way from request to scores: what the engine asks of every kind of model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workers.engine.errors import EngineError
from workers.engine.explanation_types import PairExplanation
from workers.engine.explanations import token_row
from workers.engine.model_types import ModelInfo
from workers.engine.role import Role
from workers.engine.types import (
    EncodingRequest,
    LongDocuments,
    Pairing,
    PoolingRequest,
    PoolingTask,
    ScoringOptions,
    ScoringRequest,
)

if TYPE_CHECKING:
    from workers.engine.caches.cached_encoding import Owner
    from workers.engine.forward.kept_prefix import PrefixCache
    from workers.engine.sequence import Sequence, Work
    from workers.engine.texts.prompts import Side
    from workers.engine.texts.tokenizer import TextTokenizer


CHARACTERS_PER_TOKEN = 3  # a cautious guess, only to bound what waits


class TaskRunner(ABC):
    """``run`` is for the runner thread, the rest for thread pools. ``retired``: replaced or unloaded, what still runs
    fills no cache any more. ``unloaded``: what still waits is answered with that."""

    tasks: Collection[PoolingTask] = ()  # what it does with single texts
    scores_pairs = True
    takes_instruction = False
    takes_dimensions = False
    reads_whole_pairs = False
    sample_tail = ""  # what a text must end with to give anything
    takes_token_ids = False
    room_depends_on_query = True  # of a document: query and document share the model's positions
    prefix_cache: PrefixCache | None = None  # shared by all models; the engine gives it
    tokenizer: TextTokenizer
    keeps_encodings = False  # of documents, so that they can be encoded ahead
    encodings_owner: Owner | None = None  # under which the caches know its encodings; models of one encoder have one

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        self.retired = False
        self.unloaded = False

    @abstractmethod
    def estimate(self, request: ScoringRequest) -> int:
        """About how many tokens the request will put into the queue."""

    def document_room(self, query: str, options: ScoringOptions) -> int:
        """How many of its own tokens a document may have beside a query before it is cut."""
        raise EngineError(
            "unsupported_option",
            f"The model '{self.info.name}' ({self.info.kind}) takes documents whole or cut. Give long_documents as "
            f"'{LongDocuments.TRUNCATE}'.",
        )

    def document_excess(self, query: Side, document: Side, options: ScoringOptions) -> int:
        """How many tokens of a document would be cut, were it scored with this query."""
        assert isinstance(query, str) and isinstance(document, str)
        room = self.document_room(query, options)
        return max(0, len(self.tokenizer.offsets(document)) - room)

    def token_places(self, document: Side) -> list[tuple[int, int]]:
        """First and last-plus-one character of each token; of token ids, their places."""
        if isinstance(document, str):
            return self.tokenizer.offsets(document)
        return [(i, i + 1) for i in range(len(document))]

    def estimate_texts(self, texts: Iterable[str]) -> int:
        return sum(min(self.info.max_length, 2 + len(text) // CHARACTERS_PER_TOKEN) for text in texts)

    def admit(self, request: ScoringRequest | PoolingRequest | EncodingRequest) -> int:
        """Refuse what is no text or what this kind of model cannot do, else the estimate."""
        _refuse_other_than_texts(request)
        ahead = isinstance(request, EncodingRequest) or (isinstance(request, ScoringRequest) and request.packed)
        if ahead and not self.keeps_encodings:
            raise EngineError(
                "unsupported_task",
                f"The model '{self.info.name}' ({self.info.kind}) reads a document together with its query, so "
                "nothing can be encoded ahead. Score the pairs.",
            )
        if isinstance(request, EncodingRequest):
            return self.estimate_texts(request.documents)
        if isinstance(request, PoolingRequest):
            if request.task not in self.tasks:
                able = f"it can {', '.join(sorted(self.tasks))}" if self.tasks else "it scores pairs only"
                raise EngineError(
                    "unsupported_task",
                    f"The model '{self.info.name}' ({self.info.kind}) cannot {request.task}; {able}.",
                )
            ids = sum(min(self.info.max_length, len(row)) for row in request.input_ids)
            return ids + self.estimate_texts(request.inputs)
        if not self.scores_pairs:
            raise EngineError(
                "unsupported_task",
                f"The model '{self.info.name}' ({self.info.kind}) does not score a query with documents; "
                f"it can {', '.join(sorted(self.tasks))}.",
            )
        for side, limit in (
            ("query", request.options.max_tokens_per_query),
            ("document", request.options.max_tokens_per_document),
        ):
            if limit is not None and limit < 1:
                raise EngineError("bad_limit", f"A limit of {limit} tokens per {side} leaves nothing. Give at least 1.")
        if request.options.max_tokens is not None and not self.reads_whole_pairs:
            raise EngineError(
                "bad_limit",
                f"The model '{self.info.name}' ({self.info.kind}) does not read a query and one document in one go, so "
                "max_tokens limits nothing. Give max_tokens_per_query and max_tokens_per_document.",
            )
        if request.options.dimensions is not None and not self.takes_dimensions:
            raise EngineError(
                "bad_dimensions",
                f"The model '{self.info.name}' ({self.info.kind}) does not score by one dense vector that could be "
                "shortened. Leave dimensions out.",
            )
        if request.options.instruction and not self.takes_instruction:
            raise EngineError(
                "no_instruction",
                f"The model '{self.info.name}' has no place for an instruction. Leave it out, or write it into the "
                "query.",
            )
        if (request.query_ids or request.document_ids) and not self.takes_token_ids:
            raise EngineError(
                "token_ids_refused",
                f"The model '{self.info.name}' ({self.info.kind}) takes texts, not token ids. Give queries and "
                "documents as texts, or use a generative model.",
            )
        if (
            request.options.long_documents is LongDocuments.CHUNK_MAX
        ):  # all of the documents, not what there is room for
            queries = request.query_count if request.pairing is Pairing.MATRIX else 1
            characters = sum(map(len, request.documents)) + CHARACTERS_PER_TOKEN * sum(map(len, request.document_ids))
            return self.estimate(request) + queries * characters // CHARACTERS_PER_TOKEN
        return self.estimate(request)

    @abstractmethod
    def prepare(self, work: Work) -> None:
        """Fill ``work.pending`` with what must run and ``work.results`` with where it goes."""

    def rows(self, work: Work) -> list[tuple[Role, list[int]]]:
        """The token ids that a prepared request makes the model read, row by row, and whose each is."""
        return [(sequence.role, sequence.token_ids) for sequence in work.pending]

    @abstractmethod
    def explain(self, work: Work, pair: int) -> PairExplanation:
        """Why one pair of a finished request has its score."""

    @abstractmethod
    def run(self, sequences: list[Sequence]) -> None:
        """One micro-batch of this model, of any number of requests."""

    @abstractmethod
    def finish(self, work: Work) -> Any:
        """The answer, after the request it is for: ``ScoringOutput``, ``PoolingOutput`` or ``EncodingOutput``."""

    def release(self, work: Work) -> None:  # noqa: B027 - most kinds hold nothing between micro-batches
        """Give back what the request still holds; called once for every end it may have."""

    def clear(self) -> None:  # noqa: B027
        """Give back what all requests hold: the weights are gone."""

    def set_gpu_maxsim(self, wanted: bool) -> None:
        self.info = replace(self.info, gpu_maxsim=wanted)

    @property
    def reserved_bytes(self) -> int:
        return 0

    @property
    def reservations(self) -> int:
        return 0

    def give_up_unused(self, seconds: float) -> None:  # noqa: B027
        """Give back what a request holds that has come no further in so long."""


class ReadingRunner(TaskRunner):
    """Of models that read query and document together: what was read is all that explains a score."""

    @abstractmethod
    def rows_of(self, work: Work, pair: int) -> list[tuple[Role, list[int]]]:
        """The rows that one pair of a prepared request is read from; none where it is not read."""

    def explain(self, work: Work, pair: int) -> PairExplanation:
        return PairExplanation(tuple(token_row(self.tokenizer, role, ids) for role, ids in self.rows_of(work, pair)))


def _refuse_other_than_texts(request: ScoringRequest | PoolingRequest | EncodingRequest) -> None:
    for name in ("queries", "documents", "inputs"):
        for place, given in enumerate(getattr(request, name, ())):
            if not isinstance(given, str):
                raise EngineError(
                    "not_a_text",
                    f"{name}[{place}] is {given!r:.40}, which is no text. Give a text; an empty one has no score.",
                )
