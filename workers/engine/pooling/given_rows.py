"""Token ids in place of texts: rows that their sender tokenised, read as they are."""

from __future__ import annotations

from workers.engine.errors import EngineError
from workers.engine.model_types import ModelInfo
from workers.engine.pooling.encoding import Part
from workers.engine.role import Role
from workers.engine.sequence import Sequence, Work

_OF_WHOLE_TEXTS = frozenset({Part.DENSE, Part.CLASSES})


def given_rows(work: Work, parts: frozenset[Part], vocabulary: int, info: ModelInfo) -> list[Sequence]:
    """A sequence for every row that holds an id, cut to the limit at its end.

    Raises ``EngineError`` for ids that are no tokens, and where the answer is about a text's own tokens: which of a
    given row are its own, nobody knows."""
    request = work.pooling
    if request.input_ids and not parts <= _OF_WHOLE_TEXTS:
        raise EngineError(
            "token_ids_refused",
            f"The model '{info.name}' ({info.kind}) takes texts for the task {request.task}, not token ids. Give the "
            "inputs as texts.",
        )
    strange = {
        i: odd for i, ids in enumerate(request.input_ids) if (odd := [t for t in ids if not 0 <= t < vocabulary])
    }
    if strange:
        named = "; ".join(f"inputs[{i}]: {odd[:8]}" for i, odd in list(strange.items())[:8])
        raise EngineError(
            "unknown_prompt_token_id",
            f"Token ids outside the model's vocabulary of {vocabulary}: {named}. Give ids of its tokenizer, or texts.",
        )
    limit = min(info.max_length, request.options.max_tokens or info.max_length)
    role = Role(request.role.value)
    return [
        Sequence(work, role, i, list(ids[:limit]), min(len(ids), limit), max(0, len(ids) - limit), parts=parts)
        for i, ids in enumerate(request.input_ids)
        if ids
    ]
