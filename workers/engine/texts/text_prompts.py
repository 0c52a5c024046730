"""Prompts that a checkpoint puts before its texts.

The library joins prompt and text and tokenises the one string; so do we, with the difference that the prompt is trusted
and the text is not: control tokens are found in the prompt only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.engine.errors import EngineError
from workers.engine.role import Role
from workers.engine.texts.tokenizer import TextTokenizer, Tokens

_SAMPLE = "a short text"
# The instruction's place in the prompts of instruction-tuned encoders (Qwen3-Embedding, E5, EmbeddingGemma).
_INSTRUCTED = tuple(
    re.compile(pattern, re.DOTALL) for pattern in (r"(Instruct: )(.+)(\nQuery: ?)", r"(task: )(.+)( \| query: )")
)


def instructed(prompt: str, instruction: str) -> str | None:
    """The prompt with another instruction in it; None where it has no place for one."""
    for pattern in _INSTRUCTED:
        found = pattern.fullmatch(prompt)
        if found:
            return f"{found[1]}{instruction}{found[3]}"
    return None


@dataclass(frozen=True, slots=True)
class Lead:
    """What stands before a text: ids up to the last control token, and the words tokenised together with the text."""

    ids: list[int]
    text: str
    least: int  # tokens that it has before any text
    alone: int  # tokens that it has without a text


class PromptedLayout:
    """A prompt by role, then the text, in the checkpoint's own control tokens."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int, prompts: Mapping[Role, str]) -> None:
        self._tokenizer = tokenizer
        self._room = max_length - tokenizer.special_count
        self._prompts = prompts
        self._leads = {role: self._read(prompt) for role, prompt in prompts.items()}
        for role in prompts:
            self.room(role, "")
        query = prompts.get(Role.QUERY, "")
        self.takes_instruction = not self._lead(Role.QUERY, "").ids and instructed(query, "") is not None

    def room(self, role: Role, instruction: str) -> int:
        room = self._room - self._lead(role, instruction).least
        if room < 1:
            raise EngineError(
                "prompt_too_long",
                f"The {role.value}'s prompt leaves no room for a text: the model takes {self._room} tokens. "
                "Give a shorter instruction, or register the model with a larger max_length.",
            )
        return room

    def encode(self, texts: Sequence[str], role: Role, limit: int, instruction: str) -> list[Tokens]:
        lead = self._lead(role, instruction)
        return [self._encode(lead, text, limit) for text in texts]

    def prompt_length(self, role: Role, instruction: str) -> int:
        """Tokens that a pooling without the prompt leaves out: those of the prompt alone and what stands before it."""
        lead = self._lead(role, instruction)
        return lead.alone + len(self._tokenizer.prefix_ids) if lead.alone else 0

    def _encode(self, lead: Lead, text: str, limit: int) -> Tokens:
        before, own, truncated = self._tokenizer.encode_behind(lead.text, text, limit)
        over = max(0, len(lead.ids) + len(before) + len(own) - self._room)
        kept = own[: len(own) - over]
        tokenizer = self._tokenizer
        ids = [*tokenizer.prefix_ids, *lead.ids, *before, *kept, *tokenizer.suffix_ids]
        return Tokens(ids, truncated + over, len(kept))

    def _lead(self, role: Role, instruction: str) -> Lead:
        """With an instruction, a stranger's: all of the prompt is text then."""
        if instruction and role is Role.QUERY:
            prompt = instructed(self._prompts.get(role, ""), instruction) or ""
            return self._measured([], prompt)
        return self._leads.get(role) or Lead([], "", 0, 0)

    def _read(self, prompt: str) -> Lead:
        ends = [prompt.rfind(token) + len(token) for token in self._tokenizer.control if token in prompt]
        end = max(ends, default=0)
        tokenizer = self._tokenizer
        lead = self._measured(tokenizer.encode_with_control(prompt[:end]) if end else [], prompt[end:])
        whole = self._encode(lead, _SAMPLE, 10**9).ids
        joined = [*tokenizer.prefix_ids, *tokenizer.encode_with_control(prompt + _SAMPLE), *tokenizer.suffix_ids]
        if whole != joined and len(joined) <= self._room + tokenizer.special_count:
            raise EngineError(
                "unsupported_tokenizer",
                f"The tokenizer joins the prompt {prompt!r} with its control tokens in a way that texts of strangers "
                "cannot follow. Use another checkpoint.",
            )
        return lead

    def _measured(self, ids: list[int], text: str) -> Lead:
        if not text:
            return Lead(ids, text, len(ids), len(ids))
        before, _, _ = self._tokenizer.encode_behind(text, _SAMPLE, 10**9)
        return Lead(ids, text, len(ids) + len(before), len(ids) + len(self._tokenizer.encode(text)))
