"""What a model reads, as token ids: of a text by itself, or of a query and a document as they are scored. Nothing runs
on the device."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from workers.engine.errors import EngineError
from workers.engine.role import Role
from workers.engine.sequence import Work
from workers.engine.task_runner import TaskRunner
from workers.engine.types import ScoringRequest


class TokenReader:
    """Of one loaded model; safe to use from several threads. Keep it no longer than the question."""

    def __init__(self, task: TaskRunner) -> None:
        self._task = task
        self._tokenizer = task.tokenizer

    def text(self, text: str, *, surrounded: bool) -> list[int]:
        """All ids of a text, uncut; ``surrounded`` by the control tokens that the checkpoint puts around one."""
        ids = self._tokenizer.encode_cut(text, sys.maxsize).ids
        return [*self._tokenizer.prefix_ids, *ids, *self._tokenizer.suffix_ids] if surrounded else ids

    def pair(self, request: ScoringRequest) -> list[tuple[Role, list[int]]]:
        """The rows that scoring ``request`` makes the model read, cut and dressed as then: one row where query and
        document are read together, else one for each that holds text."""
        task = self._task
        task.admit(request)
        work = Work(request, task, 0, afresh=True)
        try:
            task.prepare(work)
            return task.rows(work)
        finally:
            task.release(work)

    def names(self, token_ids: Iterable[int]) -> list[str]:
        """Each id's piece as the vocabulary writes it, empty for an id that is none."""
        return [self._tokenizer.name_of(token_id) for token_id in token_ids]

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text that the ids stand for, control tokens by their names. Raises ``EngineError`` for strange ids."""
        strange = [token_id for token_id in token_ids if not 0 <= token_id < self._tokenizer.size]
        if strange:
            raise EngineError(
                "unknown_prompt_token_id",
                f"Token ids outside the model's vocabulary of {self._tokenizer.size}: {strange[:8]}. Give ids from its "
                "tokenizer.",
            )
        return self._tokenizer.text_of(*token_ids)
