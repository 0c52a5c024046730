"""What a late-interaction folder says about its texts: markers, lengths, query expansion, skipped tokens.

Three layouts: ``HF_ColBERT`` (Stanford's ``artifact.metadata``), PyLate (``config_sentence_transformers.json``) and any
other encoder, whose tokens are compared as they are."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.engine.errors import EngineError
from workers.engine.role import Role
from workers.engine.weights import read_json

_PUNCTUATION = tuple(string.punctuation)
_PYLATE_KEYS = frozenset({
    "query_prefix", "document_prefix", "query_length", "document_length", "do_query_expansion",
    "attend_to_expansion_tokens", "skiplist_words",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class LateSettings:
    """Lengths are whole: with control tokens and marker."""

    markers: dict[Role, str]  # single tokens behind a text's first; empty: none
    query_length: int
    document_length: int
    expands_queries: bool  # filled with the expansion token up to their length
    attends_expansion: bool  # False: expansion tokens look at the query, and nothing at them
    skiplist: tuple[str, ...]  # tokens of documents that are not compared
    prompts: dict[Role, str] = field(default_factory=dict)


def read_late_settings(folder: Path) -> LateSettings | None:
    """None where the folder is an encoder that says nothing about late interaction."""
    settings = read_json(folder / "config_sentence_transformers.json")
    if settings.get("model_type") == "ColBERT" or settings.keys() & _PYLATE_KEYS:
        return _of_pylate(settings)
    if is_stanford(folder):
        return _of_stanford(folder, read_json(folder / "artifact.metadata"))
    return None


def is_stanford(folder: Path) -> bool:
    """Whether the projection is ``linear.weight`` among the encoder's own weights."""
    architectures = read_json(folder / "config.json").get("architectures") or [""]
    return architectures[0] == "HF_ColBERT" and not (folder / "modules.json").is_file()


def _of_pylate(settings: dict[str, Any]) -> LateSettings:
    """What is missing or null is PyLate's own default."""

    def given(name: str, default: Any) -> Any:
        value = settings.get(name)
        return default if value is None else value

    prompts = settings.get("prompts") or {}
    default = prompts.get(settings.get("default_prompt_name") or "", "")
    expands = bool(given("do_query_expansion", True))
    return LateSettings(
        markers={Role.QUERY: given("query_prefix", "[Q] "), Role.DOCUMENT: given("document_prefix", "[D] ")},
        query_length=int(given("query_length", 32)),
        document_length=int(given("document_length", 180)),
        expands_queries=expands,
        attends_expansion=expands and bool(given("attend_to_expansion_tokens", False)),
        skiplist=tuple(given("skiplist_words", _PUNCTUATION)),
        prompts={role: prompts.get(role.value) or default for role in (Role.QUERY, Role.DOCUMENT)},
    )


def _of_stanford(folder: Path, metadata: dict[str, Any]) -> LateSettings:
    similarity = metadata.get("similarity") or "cosine"
    if similarity != "cosine":
        raise EngineError(
            "unsupported_similarity",
            f"{folder} compares its tokens by '{similarity}'; supported is cosine. Its scores by cosine would be "
            "others than it was trained for.",
        )
    return LateSettings(
        markers={
            Role.QUERY: metadata.get("query_token_id") or "[unused0]",
            Role.DOCUMENT: metadata.get("doc_token_id") or "[unused1]",
        },
        query_length=int(metadata.get("query_maxlen") or 32),
        document_length=int(metadata.get("doc_maxlen") or 180),
        expands_queries=True,
        attends_expansion=bool(metadata.get("attend_to_mask_tokens")),
        skiplist=_PUNCTUATION if metadata.get("mask_punctuation", True) else (),
    )
