"""Prompts of rerankers whose chat template has the roles ``query`` and ``document``, as sentence-transformers has them.

The template is rendered once with marks and cut at its control tokens; what lies between two of them is tokenised as
one string. An instruction is the system message."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from workers.engine.errors import EngineError
from workers.engine.loading.weights import read_json
from workers.engine.texts.pair_layout import Limits, PromptedPair, Segment, Slot
from workers.engine.texts.tokenizer import TextTokenizer

_STRUCTURED = re.compile(r"content\[|\.type|['\"]type['\"]")  # templates that expect content in typed parts
# Private-use characters: no template holds them by chance.
_MARKS = {slot: f"\uf8f0{slot.value}\uf8f1" for slot in Slot}
_SLOTS = {mark: slot for slot, mark in _MARKS.items()}
_SAMPLE = ("what is it?", "It is a test.")

Renderer = Callable[[str, str, str], str]  # query, document, instruction (empty: none) to the prompt


def role_prompt(folder: Path, tokenizer: TextTokenizer) -> PromptedPair | None:
    """None where the folder's chat template, if any, does not know the two roles."""
    render = _renderer(folder)
    if render is None:
        return None
    query, document, instruction = (_MARKS[slot] for slot in (Slot.QUERY, Slot.DOCUMENT, Slot.INSTRUCTION))
    plain, instructed = render(query, document, ""), render(query, document, instruction)
    if plain.count(document) != 1 or query not in plain:
        raise EngineError(
            "bad_template",
            f"The chat template of {folder} must show the query, and the document exactly once, as they are given.",
        )
    takes_instruction = instruction in instructed
    default = _default_prompt(folder) if takes_instruction else ""
    layout = PromptedPair(
        tokenizer,
        _segments(instructed if default else plain, tokenizer),
        default_instruction=default,
        instructed=_segments(instructed, tokenizer) if takes_instruction else None,
    )
    (sample,) = layout.place(_SAMPLE[:1], _SAMPLE[1:], [(0, 0)], Limits(10**9, None, None), "")
    if sample is None or sample.token_ids != tokenizer.encode_with_control(render(*_SAMPLE, default)):
        raise EngineError(
            "unsupported_tokenizer",
            "This tokenizer joins its control tokens with the text around them, which scoring of foreign texts cannot "
            "follow. Use another checkpoint.",
        )
    return layout


def _renderer(folder: Path) -> Renderer | None:
    said = read_json(folder / "tokenizer_config.json").get("chat_template")
    if not said and not (folder / "chat_template.jinja").is_file():
        return None
    own = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    template = own.chat_template
    if not isinstance(template, str) or not all(
        re.search(f"['\"]{role}['\"]", template) for role in ("query", "document")
    ):
        return None
    settings = read_json(folder / "sentence_bert_config.json")
    arguments: dict[str, Any] = dict((settings.get("processing_kwargs") or {}).get("chat_template") or {})
    arguments.pop("restore_suffix", None)  # the library's own: what is cut there is never the template's end here
    form = ((settings.get("modality_config") or {}).get("message") or {}).get("format", "auto")
    structured = form == "structured" or (form == "auto" and _STRUCTURED.search(template) is not None)

    def render(query: str, document: str, instruction: str) -> str:
        texts = {"system": instruction, "query": query, "document": document}
        messages: Any = [
            {"role": role, "content": [{"type": "text", "text": text}] if structured else text}
            for role, text in texts.items()
            if text or role != "system"
        ]
        rendered: Any = own.apply_chat_template(messages, tokenize=False, **arguments)
        return str(rendered)

    return render


def _default_prompt(folder: Path) -> str:
    config = read_json(folder / "config_sentence_transformers.json")
    return str((config.get("prompts") or {}).get(config.get("default_prompt_name")) or "")


def _segments(rendered: str, tokenizer: TextTokenizer) -> list[Segment]:
    """Control tokens as ids, the runs between them as text with slots."""
    control = sorted(tokenizer.control, key=len, reverse=True)
    marks = re.compile(f"({'|'.join(map(re.escape, _SLOTS))})")
    segments: list[Segment] = []
    for run in re.split(f"({'|'.join(map(re.escape, control))})", rendered) if control else [rendered]:
        if run in tokenizer.control:
            segments.append([tokenizer.control[run]])
        elif run:
            segments.append(tuple(_SLOTS.get(part, part) for part in marks.split(run) if part))
    return segments
