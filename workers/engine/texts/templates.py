"""Prompts of generative scoring: Jinja text around a query and an item, tokenised so that only the template holds
control tokens.

A template is rendered once with place holders and cut at its control tokens. What lies between two of them is tokenised
as one string, as the checkpoint's own tokenizer would, so merges across the border of template and text are the right
ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from workers.engine.errors import EngineError
from workers.engine.texts.tokenizer import TextTokenizer

_ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
_PLAIN = (nodes.Output, nodes.TemplateData, nodes.Name, nodes.If, nodes.Not)
_REQUEST_CHARACTERS = 20_000
_FAULTS = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError)
# Private-use characters, so that no filter changes them and no template holds them by chance.
_QUERY, _ITEM = "\uf8f0query\uf8f1", "\uf8f0item\uf8f1"
_SLOTS = re.compile(f"({_QUERY}|{_ITEM})")
_SAMPLE = ("what is a test?", "A test shows whether something works.")
_OTHER_SAMPLE = ("Rain", "7 rivers")  # begins with other tokens

_QUESTION = (
    "{% if item_first %}Passage: {{ item }}\nQuery: {{ query }}"
    "{% else %}Query: {{ query }}\nPassage: {{ item }}{% endif %}\n"
    "Is the passage about the query? Answer yes or no."
)
# The wording was chosen by measurement with SmolLM2-135M on 20 queries, each with the passage that answers it and two
# others: with the two worked examples the right passage came first in 92 % of the comparisons (85 % with two other
# passages each), with the same question alone in 68 %. Of a model that small, expect an order, not a calibrated share.
CHAT_JUDGE = (
    "{% macro ask(query, item) %}<|im_start|>user\n" + _QUESTION + "<|im_end|>\n<|im_start|>assistant\n{% endmacro %}"
    "<|im_start|>system\nJudge whether the passage is relevant to the query. Answer only yes or no.<|im_end|>\n"
    "{{ ask('height of Mount Everest', 'Mount Everest rises 8,849 metres above sea level.') }}yes<|im_end|>\n"
    "{{ ask('height of Mount Everest', 'A sonnet is a poem of fourteen lines.') }}no<|im_end|>\n"
    "{{ ask(query, item) }}"
)
PLAIN_JUDGE = _QUESTION + "\nAnswer:\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    token_ids: list[int]
    truncated: int  # tokens cut from the item
    query_truncated: int
    item_tokens: int  # before the cut, with those that the item shares with what is around it
    heads: tuple[int, ...] = ()  # where other prompts may part from it: behind the template's, the query's last token


def default_template(tokenizer: TextTokenizer) -> str:
    """The judge in the checkpoint's chat format where that is ChatML, else in plain words."""
    return CHAT_JUDGE if "<|im_start|>" in tokenizer.control else PLAIN_JUDGE


class PromptTemplate:
    """One template with one tokenizer; ``build`` is safe to call from several threads."""

    def __init__(
        self, text: str, tokenizer: TextTokenizer, *, item_first: bool = False, registered: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        if not registered:
            _refuse_programs(text)
        rendered = _render(text, item_first, tokenizer)
        if item_first and rendered == _render(text, False, tokenizer):
            raise EngineError(
                "template_ignores_item_first",
                "item_first was asked for, but the template does not use it. Write "
                "{% if item_first %} … {% else %} … {% endif %} in the template, or leave item_first out.",
            )
        self._parts = _cut(rendered, tokenizer.control)
        sample = rendered.replace(_QUERY, _SAMPLE[0]).replace(_ITEM, _SAMPLE[1])
        self._opening: list[int] = []
        built, other = (self.build(*texts, max_length=10**9) for texts in (_SAMPLE, _OTHER_SAMPLE))
        if built is None or built.token_ids != tokenizer.encode_with_control(sample):
            raise EngineError(
                "unsupported_tokenizer",
                "This tokenizer joins its control tokens with the text around them, which scoring of foreign "
                "texts cannot follow. Write the template without blanks around control tokens, or use another "
                "checkpoint.",
            )
        self._opening = built.token_ids[: shared_length(built.token_ids, other.token_ids if other else [])]

    @cached_property
    def tail(self) -> str:
        """The text behind the last control token, query or item: what a label is written behind."""
        last = self._parts[-1]
        return _SLOTS.split(last)[-1] if isinstance(last, str) else ""

    def build(
        self, query: str, item: str, *, max_length: int, max_query: int | None = None, max_item: int | None = None
    ) -> Prompt | None:
        """The prompt, its item cut to ``max_length`` and ``max_item``; None if no token of the item would be left."""
        query_truncated = beyond = 0
        if max_query is not None:
            query, query_truncated = self._tokenizer.cut_text(query, max_query)
        item, beyond = self._tokenizer.head(item, max_length)
        ids: list[int] = []
        first = last = touched = head = 0
        for part in self._parts:
            if isinstance(part, int):
                ids.append(part)
            elif _ITEM in part:
                run, inside, touching = self._encode_item_run(part, query, item)
                head, touched = len(ids) + touching.start, len(touching)
                first, last = len(ids) + inside.start, len(ids) + inside.stop
                ids += run
            else:
                ids += self._tokenizer.encode(part.replace(_QUERY, query))
        cut = max(0, len(ids) - max_length, touched - (max_item or touched))
        if cut and cut >= last - first:
            return None
        heads = (shared_length(ids, self._opening), head)
        return Prompt(ids[: last - cut] + ids[last:], cut + beyond, query_truncated, touched + beyond, heads)

    def _encode_item_run(self, part: str, query: str, item: str) -> tuple[list[int], range, range]:
        """The run's ids; which lie wholly inside the item and may be cut; which hold any of its characters."""
        before, after = (side.replace(_QUERY, query) for side in part.split(_ITEM))
        ids, offsets = self._tokenizer.encode_with_offsets(before + item + after)
        start, end = len(before), len(before) + len(item)
        inside = [i for i, (first, last) in enumerate(offsets) if start <= first and last <= end]
        touching = [i for i, (first, last) in enumerate(offsets) if first < end and last > start]
        return ids, _spanned(inside), _spanned(touching)


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _spanned(places: list[int]) -> range:
    return range(places[0], places[-1] + 1) if places else range(0)


def _refuse_programs(text: str) -> None:
    """A request's template is text around two slots. Only a registered one may compute: the sandbox keeps a stranger's
    loops and products from the machine's files, but not from its memory and time."""
    if len(text) > _REQUEST_CHARACTERS:
        raise EngineError(
            "bad_template",
            f"The template has {len(text):,} characters; a request's has at most {_REQUEST_CHARACTERS:,}.",
        )
    try:
        parsed = _ENVIRONMENT.parse(text)
    except _FAULTS as error:
        raise EngineError("bad_template", f"The template cannot be read: {error}.") from error
    strange = {type(node).__name__ for node in parsed.find_all(nodes.Node) if not isinstance(node, _PLAIN)}
    if strange:
        raise EngineError(
            "bad_template",
            f"The template computes ({', '.join(sorted(strange))}); a request's may hold text, {{{{ query }}}}, "
            "{{ item }} and {% if item_first %} … {% else %} … {% endif %} only. Register the model with a template "
            "for more.",
        )


def _render(text: str, item_first: bool, tokenizer: TextTokenizer) -> str:
    try:
        rendered = _ENVIRONMENT.from_string(text).render(query=_QUERY, item=_ITEM, item_first=item_first)
    except _FAULTS as error:
        raise EngineError(
            "bad_template", f"The template cannot be rendered: {error}. Known names are query, item and item_first."
        ) from error
    if rendered.count(_ITEM) != 1 or _QUERY not in rendered:
        raise EngineError(
            "bad_template", "The template must hold {{ query }}, and {{ item }} exactly once, both without filters."
        )
    return rendered


def _cut(rendered: str, control: dict[str, int]) -> list[str | int]:
    """Control tokens as ids, the runs between them as text."""
    if not control:
        return [rendered]
    longest_first = sorted(control, key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", rendered)
    return [control.get(piece, piece) for piece in pieces if piece]
