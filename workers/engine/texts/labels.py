"""Labels of generative scoring: what is looked for behind a prompt, as token ids.

Shapes: K labels."""

from __future__ import annotations

from dataclasses import dataclass

from workers.engine.errors import EngineError
from workers.engine.texts.tokenizer import TextTokenizer
from workers.engine.types import ScoringOptions


@dataclass(frozen=True, slots=True)
class Labels:
    names: tuple[str, ...]  # K
    token_ids: tuple[tuple[int, ...], ...]  # K, one or more ids each

    @property
    def continuations(self) -> tuple[tuple[int, ...], ...]:
        """What must run behind a prompt to know every label's last token: the distinct labels without it."""
        return tuple(dict.fromkeys(ids[:-1] for ids in self.token_ids if len(ids) > 1))

    @property
    def room(self) -> int:
        """Tokens that they need behind a prompt."""
        return max(len(ids) for ids in self.token_ids) - 1


def find_labels(
    options: ScoringOptions, default: tuple[str, ...], tail: str, tokenizer: TextTokenizer, vocabulary: int
) -> Labels:
    """Label strings become the ids by which the end of the prompt, ``tail``, grows when the label is written behind."""
    if options.label_token_ids:
        ids = tuple(each if isinstance(each, tuple) else (each,) for each in options.label_token_ids)
        unknown = [token_id for each in ids for token_id in each if not 0 <= token_id < vocabulary]
        if unknown:
            raise EngineError(
                "unknown_token_id", f"Token ids {unknown} are outside the vocabulary of {vocabulary} tokens."
            )
        labels = Labels(tuple(tokenizer.text_of(*each) for each in ids), ids)
    else:
        names = options.labels or default
        labels = Labels(names, tuple(_written_behind(tokenizer, tail, name) for name in names))
    if not all(labels.token_ids):
        raise EngineError(
            "empty_label", f"One of the labels {list(labels.names)} holds no token. Give labels that can be written."
        )
    if len(set(labels.token_ids)) < len(labels.token_ids):
        raise EngineError(
            "equal_labels",
            f"Two of the labels {list(labels.names)} are the same tokens {[list(ids) for ids in labels.token_ids]}. "
            "Give labels that differ.",
        )
    if options.apply_softmax and len(labels.names) < 2:
        raise EngineError(
            "one_label",
            "Among one label its probability is always 1. Give a second label, or set apply_softmax to false.",
        )
    return labels


def _written_behind(tokenizer: TextTokenizer, tail: str, name: str) -> tuple[int, ...]:
    before, after = tokenizer.encode(tail), tokenizer.encode(tail + name)
    if after[: len(before)] != before:
        raise EngineError(
            "label_merges_with_prompt",
            f"The label '{name}' written behind the prompt's end {tail!r} changes that end's own tokens. "
            "End the template with a line break, or give label_token_ids.",
        )
    return tuple(after[len(before) :])
