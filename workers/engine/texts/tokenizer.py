"""A tokenizer for texts of strangers: whatever a text holds, it never becomes a control token.

A checkpoint's tokenizer turns the literal ``[SEP]`` or ``<|im_end|>`` of a document into the control token of that
name. Ours is the same pipeline without its added tokens, and with the vocabulary entries of control tokens renamed to
what no text can hold (a Unigram model would otherwise still pick its ``</s>`` piece). Control tokens are put around
texts by id.

The pipeline is never changed after it is built (no truncation, no padding), so threads may share it: "Already borrowed"
comes from settings that change between calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream

from workers.engine.errors import EngineError

_UNREACHABLE = "\0control:"  # NUL never enters the platform
_SEGMENT_CHARACTERS = 2**15
_LONGEST_WORD = 2**20
_SAMPLE = (
    "A model's 2nd test: does it read well? Naïve words, 3.14 numbers; and (brackets) too.\nThen one more line of it."
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text's ids with what is put around them. ``own`` are the text's, at most the limit asked for."""

    ids: list[int]
    truncated: int
    own: int
    attended: int | None = None  # so many first ids are attended to, the rest only attend; None: all are
    filled: int = 0  # so many last ids are expansion


def control_tokens(pipeline: dict[str, Any]) -> dict[str, int]:
    """The added tokens of a pipeline by text. Added runs of white space are text, not control."""
    return {t["content"]: t["id"] for t in pipeline["added_tokens"] if t["content"].strip(" \t\r\n▁")}


def text_pipeline(pipeline: dict[str, Any]) -> dict[str, Any]:
    """The pipeline (tokenizer.json as a dict) without control tokens, truncation, padding and post-processing."""
    control = control_tokens(pipeline)
    model = dict(pipeline["model"])
    if isinstance(
        model["vocab"], list
    ):  # Unigram: [piece, score] in the order of ids; scores stay, so no other path changes
        model["vocab"] = [[_unreachable(piece, control), score] for piece, score in model["vocab"]]
    else:
        merged = {piece for merge in model.get("merges", ()) for piece in _merge_parts(merge)}
        rename = {piece: index for piece, index in control.items() if piece not in merged}
        model["vocab"] = {_unreachable(piece, rename): index for piece, index in model["vocab"].items()}
        if model.get("unk_token"):
            model["unk_token"] = _unreachable(model["unk_token"], rename)
    kept = [t for t in pipeline["added_tokens"] if t["content"] not in control]
    return {
        **pipeline,
        "model": model,
        "added_tokens": kept,
        "truncation": None,
        "padding": None,
        "post_processor": None,
    }


def _merge_parts(merge: str | list[str]) -> tuple[str, str, str]:
    first, second = merge.split(" ", 1) if isinstance(merge, str) else merge
    return first, second, first + second


def _unreachable(piece: str, control: dict[str, int]) -> str:
    return _UNREACHABLE + piece if piece in control else piece


def _boundary(text: str, start: int) -> int:
    """The next place at or after ``start`` where one blank stands between two words: tokens never cross it."""
    for place in range(max(start, 1), min(len(text) - 1, start + _LONGEST_WORD)):
        if text[place] == " " and text[place - 1].isalnum() and text[place + 1].isalnum():
            return place
    return min(len(text), start + _LONGEST_WORD)


def segments(text: str, size: int = _SEGMENT_CHARACTERS) -> Iterator[str]:
    """Cut a text at blanks between words into pieces of about ``size`` characters; their concatenation is the text."""
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= size else _boundary(text, start + size)
        yield text[start:end]
        start = end


class TextTokenizer:
    """Texts to ids without control tokens; ``prefix_ids`` and ``suffix_ids`` are what the checkpoint puts around."""

    def __init__(
        self, backend: tokenizers.Tokenizer, roles: Mapping[str, int] | None = None, *, gives_types: bool = False
    ) -> None:
        pipeline = json.loads(backend.to_str())
        self.roles = dict(roles or {})  # "mask_token", "eos_token" …, where the checkpoint has them
        self.gives_types = gives_types  # tells the texts of a pair apart
        self.control = control_tokens(pipeline)
        self._texts = tokenizers.Tokenizer.from_str(json.dumps(text_pipeline(pipeline)))
        self.prefix_ids, self.suffix_ids = _surroundings(backend)
        self._whole = tokenizers.Tokenizer.from_str(json.dumps({**pipeline, "truncation": None, "padding": None}))
        plain = self.encode(_SAMPLE)
        if plain != self.encode_with_control(_SAMPLE):
            raise EngineError(
                "unsupported_tokenizer",
                "Plain text becomes other ids once the control tokens are taken out of this "
                "tokenizer. Give a checkpoint whose added tokens are control tokens only.",
            )
        self._can_cut = [i for part in segments(_SAMPLE, 20) for i in self.encode(part)] == plain

    @property
    def size(self) -> int:
        """Ids of the vocabulary, control tokens too."""
        size: int = self._whole.get_vocab_size(with_added_tokens=True)
        return size

    @property
    def special_count(self) -> int:
        return len(self.prefix_ids) + len(self.suffix_ids)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._texts.encode(text, add_special_tokens=False).ids
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids and, for each, its first and last-plus-one character."""
        encoding = self._texts.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """First and last-plus-one character of each of a text's tokens. Long texts pass in pieces."""
        places, before = [], 0
        for part in segments(text) if self._can_cut else (text,):
            places += [(before + first, before + last) for first, last in self.encode_with_offsets(part)[1]]
            before += len(part)
        return places

    def encode_with_control(self, text: str) -> list[int]:
        """As the checkpoint's own tokenizer does: for templates and comparisons, never for a stranger's text."""
        ids: list[int] = self._whole.encode(text, add_special_tokens=False).ids
        return ids

    def name_of(self, token_id: int) -> str:
        """Its piece of the vocabulary; empty where there is none."""
        return self._whole.id_to_token(token_id) or ""

    def text_of(self, *token_ids: int) -> str:
        text: str = self._whole.decode(token_ids, skip_special_tokens=False)
        return text

    def texts_of(self, token_ids: Sequence[int]) -> list[str]:
        """What each of the ids adds to their text, control tokens by their names: a blank stands before what begins a
        word, and of a character in several ids the last one has the text."""
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self._whole, token_id) or "" for token_id in token_ids]

    def cut_text(self, text: str, limit: int) -> tuple[str, int]:
        """The beginning of a text that has ``limit`` tokens, and how many tokens that leaves out."""
        text, beyond = self.head(text, limit)
        ids, offsets = self.encode_with_offsets(text)
        if len(ids) <= limit:
            return text, beyond
        return text[: offsets[limit - 1][1]], beyond + len(ids) - limit

    def head(self, text: str, limit: int) -> tuple[str, int]:
        """A beginning that holds at least ``limit`` tokens, cut between words, and the number of tokens behind it."""
        if len(text) <= _SEGMENT_CHARACTERS:
            return text, 0
        kept, behind, tokens = [], 0, 0
        for part in segments(text) if self._can_cut else (text,):
            if tokens < limit:
                kept.append(part)
                tokens += len(self.encode(part))
            else:
                behind += len(self.encode(part))
        return "".join(kept), behind

    def encode_behind(self, lead: str, text: str, limit: int) -> tuple[list[int], list[int], int]:
        """``lead`` and ``text`` as one string: the ids of the lead, at most ``limit`` of those that hold characters of
        the text, and how many more of these there are. Only the beginning of a long text stands in one string."""
        parts = iter(segments(text) if self._can_cut else (text,))
        ids, offsets = self.encode_with_offsets(lead + next(parts, ""))
        first = next((i for i, (_, end) in enumerate(offsets) if end > len(lead)), len(ids))
        own, total = ids[first : first + limit], len(ids) - first
        for part in parts:
            ids_here = self.encode(part)
            total += len(ids_here)
            own += ids_here[: max(0, limit - len(own))]
        return ids[:first], own, total - len(own)

    def id_of(self, token: str) -> int | None:
        """The id of a piece of the vocabulary or of an added token, exactly as written; None where there is none."""
        found: int | None = self._whole.token_to_id(token)
        return found

    def encode_surrounded(self, texts: Sequence[str], limit: int) -> list[Tokens]:
        """Each text's ids cut to ``limit``, then surrounded."""
        return [self._surround(text, limit) for text in texts]

    def encode_pair_with_control(self, first: str, second: str) -> list[tuple[int, int, int | None]]:
        """As the checkpoint's post-processing places a pair: each token's id, its type, and the text it is of (0 or 1;
        None: of neither). For templates, never for a stranger's text."""
        encoding = self._whole.encode(first, second, add_special_tokens=True)
        return list(zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True))

    def _surround(self, text: str, limit: int) -> Tokens:
        tokens = self.encode_cut(text, limit)
        return Tokens([*self.prefix_ids, *tokens.ids, *self.suffix_ids], tokens.truncated, len(tokens.ids))

    def encode_cut(self, text: str, limit: int) -> Tokens:
        """The first ``limit`` ids of a text. Long texts pass in pieces: memory stays bounded."""
        kept: list[int] = []
        total = 0
        for part in segments(text) if self._can_cut else (text,):
            ids = self.encode(part)
            total += len(ids)
            kept += ids[: max(0, limit - len(kept))]
        return Tokens(kept, total - len(kept), len(kept))


def _surroundings(backend: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that the checkpoint's post-processing puts before and after a single text."""
    bare = backend.encode("a", add_special_tokens=False)
    inner = [i for i, mask in zip(bare.ids, bare.attention_mask, strict=True) if mask]
    dressed = backend.encode("a", add_special_tokens=True)
    outer = [i for i, mask in zip(dressed.ids, dressed.attention_mask, strict=True) if mask]
    for start in range(len(outer) - len(inner) + 1):
        if outer[start : start + len(inner)] == inner:
            return outer[:start], outer[start + len(inner) :]
    raise EngineError(
        "unsupported_tokenizer",
        f"The tokenizer gives {outer} for 'a' with special tokens, in which its plain ids {inner} do not appear.",
    )
