"""Whether rankings may be compared, what has to be said about it, and in which settings they differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scoring.models import JudgementSet, Stage, StageMethod

NOTHING: Final = "—"


@dataclass(frozen=True, slots=True)
class Remark:
    """``tone`` warn: to be kept in mind; bad: something is not compared, or says nothing."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Comparability:
    """``depth``: ranks of each query that are compared, None: all; ``ranks``: whether ranks may be compared at all."""

    depth: int | None
    ranks: bool
    remarks: list[Remark]


def comparability(stages: Sequence[Stage], judgements: JudgementSet | None = None) -> Comparability:
    """Of stages over one query set, measured against ``judgements`` if any are given."""
    remarks = []
    documents = {stage.job.document_set_id: stage.job.document_set for stage in stages}
    if len(documents) > 1:
        names = " and ".join(f"{found.name} ({found.created_at:%Y-%m-%d %H:%M})" for found in documents.values())
        text = f"Different documents: {names}. Ranks are not compared; means against judgements still tell something."
        remarks.append(Remark("bad", text))
    depths = [stage.top_k for stage in stages]
    depth = min((kept for kept in depths if kept is not None), default=None)
    if len(set(depths)) > 1:
        kept = _each(f"{kept:,}" if kept else "all" for kept in depths)
        remarks.append(Remark("warn", f"Cut to {depth:,} per query: they keep {kept}."))
    candidates = [_candidates(stage) for stage in stages]
    if len(set(candidates)) > 1:
        text = f"Different candidates: {_each(candidates)}. What is absent from a ranking may never have been scored."
        remarks.append(Remark("warn", text))
    limits = [_truncation(stage) for stage in stages]
    if len({limit for limit in limits if limit is not None}) > 1:
        cut = _each(limit or "not at all" for limit in limits)
        remarks.append(Remark("warn", f"Texts are cut differently: {cut}."))
    partial = [stage for stage in stages if stage.statistics.get("not_scored")]
    if partial:
        counts = ", ".join(f"{stage.statistics['not_scored']:,} of {stage} ({stage.job.name})" for stage in partial)
        remarks.append(Remark("warn", f"Pairs that were not scored: {counts}. What is compared is a part."))
    judges = judgements.judging_models if judgements else ()
    if own := [str(stage) for stage in stages if stage.model and stage.model.name in judges]:
        text = f"Measured by judgements that it gave itself: {', '.join(dict.fromkeys(own))}."
        remarks.append(Remark("bad", text))
    return Comparability(depth, len(documents) == 1, remarks)


def _each(words: Iterable[str]) -> str:
    return ", ".join(f"{letter} {word}" for letter, word in zip("ABCD", words, strict=False))


def _candidates(stage: Stage) -> str:
    """In words. The stages that retrieve choose from all documents."""
    source = stage.source
    if source is None:
        return "those of the run" if stage.method == StageMethod.RUN else "all documents"
    kept = f"the first {source.top_k:,} of" if source.top_k else "what came from"
    return f"{kept} {source}"


def _truncation(stage: Stage) -> str | None:
    if stage.model is None:
        return None
    length = stage.settings.get("max_length")
    policy = stage.settings.get("truncation")
    words = f"at {length:,} tokens" if length else "at the model's limit"
    return f"{words} ({policy})" if policy else words


@dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def settings_of(stages: Sequence[Stage]) -> list[SettingRow]:
    """Everything that a ranking depends on, by name; a setting that a stage does not have is a dash."""
    every = [_settings(stage) for stage in stages]
    names = dict.fromkeys(name for one in every for name in one)
    return [SettingRow(name, [one.get(name, NOTHING) for one in every]) for name in names]


def _settings(stage: Stage) -> dict[str, str]:
    job = stage.job
    own: dict[str, Any] = {
        "document set": job.document_set.name,
        "query set": job.query_set.name,
        "method": stage.get_method_display(),
        "model": stage.model.name if stage.model else None,
        "revision": stage.model_revision,
        "run": stage.run_set.name if stage.run_set else None,
        "candidates": _candidates(stage),
        "kept per query": stage.top_k or "all",
        "backend": stage.statistics.get("backends"),
        "dtype in force": stage.statistics.get("dtypes"),
    }
    settings = {name.replace("_", " "): value for name, value in stage.settings.items()}
    return {name: _shown(value) for name, value in {**settings, **own}.items() if value not in (None, "", [], {})}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
