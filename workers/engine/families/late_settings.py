"""What a late-interaction folder says about its texts: markers, lengths, query expansion, skipped tokens.

Layouts: ``HF_ColBERT`` (Stanford's ``artifact.metadata``), PyLate (``config_sentence_transformers.json``), the
MultiVectorEncoder of sentence-transformers (its Transformer's own configuration), and any other encoder, whose tokens
are compared as they are."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.engine.errors import EngineError
from workers.engine.families.sentence_modules import Module, read_modules, sentence_config, transformer_folder
from workers.engine.loading.weights import read_json
from workers.engine.role import Role

_PUNCTUATION = tuple(string.punctuation)
_PYLATE_KEYS = frozenset({
    "query_prefix", "document_prefix", "query_length", "document_length", "do_query_expansion",
    "attend_to_expansion_tokens", "skiplist_words",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expansion:
    """Queries are filled up with a token that takes part in the comparison."""

    length: int
    attended: bool  # False: expansion tokens look at the query, and nothing at them
    token: str | None = None  # None: the tokenizer's mask, else its end


@dataclass(frozen=True, slots=True)
class LateSettings:
    """Lengths are whole: with control tokens and marker. None: the model's own limit."""

    query_length: int | None
    document_length: int | None
    expansion: Expansion | None
    skiplist: tuple[str, ...]  # tokens of documents that are not compared
    markers: dict[Role, str] = field(default_factory=dict)  # single tokens behind a text's first
    prompts: dict[Role, str] = field(default_factory=dict)
    mean: bool = False  # MaxSim over the number of the query's vectors


def read_late_settings(folder: Path) -> LateSettings | None:
    """None where the folder is an encoder that says nothing about late interaction."""
    settings = read_json(folder / "config_sentence_transformers.json")
    if settings.get("model_type") == "ColBERT" or settings.keys() & _PYLATE_KEYS:
        return _of_pylate(settings)
    if settings.get("model_type") == "MultiVectorEncoder":
        return _of_multi_vector_encoder(folder, settings)
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
    length = int(given("query_length", 32))
    expansion = Expansion(length, bool(given("attend_to_expansion_tokens", False)))
    return LateSettings(
        query_length=length,
        document_length=int(given("document_length", 180)),
        expansion=expansion if given("do_query_expansion", True) else None,
        skiplist=tuple(given("skiplist_words", _PUNCTUATION)),
        markers={Role.QUERY: given("query_prefix", "[Q] "), Role.DOCUMENT: given("document_prefix", "[D] ")},
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
    length = int(metadata.get("query_maxlen") or 32)
    return LateSettings(
        query_length=length,
        document_length=int(metadata.get("doc_maxlen") or 180),
        expansion=Expansion(length, bool(metadata.get("attend_to_mask_tokens"))),
        skiplist=_PUNCTUATION if metadata.get("mask_punctuation", True) else (),
        markers={
            Role.QUERY: metadata.get("query_token_id") or "[unused0]",
            Role.DOCUMENT: metadata.get("doc_token_id") or "[unused1]",
        },
    )


def _of_multi_vector_encoder(folder: Path, settings: dict[str, Any]) -> LateSettings:
    """Markers are part of its prompts."""
    similarity = settings.get("similarity_fn_name") or "maxsim"
    if similarity not in ("maxsim", "meanmaxsim"):
        raise EngineError(
            "unsupported_similarity",
            f"{folder} compares its texts by '{similarity}'; supported are maxsim and meanmaxsim. Its scores by one of "
            "these would be others than it was trained for.",
        )
    own = sentence_config(transformer_folder(folder))
    query_length, given = own.get("query_length"), own.get("query_expansion")
    expansion = None
    if given:
        expansion = Expansion(int(given["length"]), bool(given.get("attend", False)), given.get("token"))
        if given["strategy"] == "fixed":
            query_length = expansion.length
        elif query_length is not None:
            query_length = max(query_length, expansion.length)
    masks = [_skiplist(module) for module in read_modules(folder) if module.kind == "MultiVectorMask"]
    prompts = settings.get("prompts") or {}
    return LateSettings(
        query_length=query_length,
        document_length=own.get("document_length"),
        expansion=expansion,
        skiplist=tuple(word for mask in masks for word in mask),
        mean=similarity == "meanmaxsim",
        prompts={role: prompts.get(role.value) or "" for role in (Role.QUERY, Role.DOCUMENT)},
    )


def _skiplist(module: Module) -> list[str]:
    config = module.config
    if config.get("keep_only_token_ids") or (config.get("skiplist_tasks") or ["document"]) != ["document"]:
        raise EngineError(
            "unsupported_module",
            f"{module.folder} keeps only some tokens, or skips tokens of queries; supported is a list of words that "
            "documents skip.",
        )
    words: list[str] = config.get("skiplist_words") or []
    return words
