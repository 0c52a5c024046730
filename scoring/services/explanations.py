"""Why a pair has its score: computed afresh by the model, beside the score that is stored.

What differs from the stored score's making is said in sentences; nothing is explained that would only look like it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from assay.api.principal import Principal
from assay.callers import Caller
from assay.errors import AssayError
from scoring.models import ScoreRequest, ScoringModel, Stage
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncExplanation, SyncMatches, SyncOptions
from scoring.selectors.explanations import RankedPair, job_texts_gone, kept_items, ranked_pair
from scoring.services.scoring import ScoredItem, ScoringAnswer, scoring_run
from scoring.services.stages import changed_settings, model_snapshot

# How far two runs of one pair may be apart per unit of score, by the dtype of the less exact one.
TOLERANCE: Final = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2, "int8": 5e-2, "remote": 2e-2}


@dataclass(frozen=True, slots=True)
class StoredScore:
    """``agrees``: the score computed for the explanation is this one, within the dtype's tolerance; None: it cannot be
    told."""

    raw_score: float | None
    agrees: bool | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """``notes``: what a reader must know before believing it."""

    answer: ScoringAnswer
    query: str
    document: str
    stored: StoredScore | None = None
    notes: list[str] = field(default_factory=list)
    pair: RankedPair | None = None

    @property
    def item(self) -> ScoredItem:
        return self.answer.items[0]

    @property
    def why(self) -> SyncExplanation:
        """Empty where a server elsewhere gave the score."""
        return next(iter(self.answer.reply.explanations), SyncExplanation())

    @property
    def labels(self) -> list[tuple[str, float | None]]:
        """Each label of a generative model with its probability."""
        told = self.answer.reply.labels
        return list(zip(told.labels, told.probabilities[0], strict=True)) if told else []


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks, by which way, and how long they wait."""

    principal: Principal
    endpoint: str
    timeout_ms: int | None = None
    request_id: str = ""
    caller: Caller | None = None


def similarities(matches: SyncMatches) -> npt.NDArray[np.float32]:
    """[m, d]"""
    return np.frombuffer(base64.b64decode(matches.similarities), "<f4").reshape(len(matches.best), -1)


def pair_explain(
    *, asked: Asked, model: ScoringModel, query: str, document: str, options: SyncOptions | None = None
) -> Explanation:
    """Score one pair and say why. Raises AssayError as ``scoring_run`` does."""
    return _explained(asked, model, query, document, options or SyncOptions(), keep_texts=True)


def _explained(
    asked: Asked, model: ScoringModel, query: str, document: str, options: SyncOptions, *, keep_texts: bool
) -> Explanation:
    answer = scoring_run(
        principal=asked.principal,
        endpoint=asked.endpoint,
        model=model,
        queries=[query],
        documents=[document],
        options=replace(options, explain=True),
        timeout_ms=asked.timeout_ms,
        request_id=asked.request_id,
        caller=asked.caller,
        keep_texts=keep_texts,
    )
    return Explanation(answer, query, document, notes=_about_kind(model))


def result_explain(*, asked: Asked, stage: Stage, query: str, document: str) -> Explanation:
    """Of one ranked document of a job, both named by their ids in the uploaded files.

    Raises AssayError, beside what ``scoring_run`` raises: 404 ``no_such_query``, ``no_such_document`` and
    ``not_ranked``, 409 ``stage_without_model`` and ``texts_deleted``."""
    pair = ranked_pair(stage, query=query, document=document)
    if stage.model is None:
        message = (
            f"Stage {stage.index} is {stage.get_method_display()}, not scored by a model, so there are no tokens to "
            "show. Explain a stage with a model."
        )
        raise AssayError("stage_without_model", message, status=409, param="stage")
    if job_texts_gone(stage.job):
        message = "The texts of this job were deleted; its scores stay, but cannot be explained without them."
        raise AssayError("texts_deleted", message, status=409)
    asked.principal.require_model(stage.model.name)
    query_text, text = pair.result.query.text, pair.ranked.document.text
    found = _explained(asked, stage.model, query_text, text, SyncOptions(), keep_texts=False)
    raw = pair.ranked.raw_score
    notes = [
        *_changes(
            revision=pair.report.get("revision") or stage.model_revision,
            dtype=pair.report.get("dtype", ""),
            answer=found.answer,
        ),
        *_changed_settings(stage, found.answer.model),
    ]
    return replace(_beside(found, raw, pair.report.get("dtype", ""), notes), pair=pair)


def item_explain(*, asked: Asked, row: ScoreRequest, index: int) -> Explanation:
    """Of one pair of a kept request.

    Raises AssayError, beside what ``scoring_run`` raises: 404 ``no_such_item``, 409 ``texts_not_kept`` and
    ``model_gone``."""
    item = next((each for each in kept_items(row) if each.index == index), None)
    if item is None:
        message = f"The request has no result {index} that is stored; give an index that its results name."
        raise AssayError("no_such_item", message, status=404, param="index")
    if item.query is None or item.document is None:
        message = "The texts of this request are not kept, or no longer, so that its scores cannot be explained."
        raise AssayError("texts_not_kept", message, status=409)
    if row.model is None:
        message = f"The model '{row.model_name}' is not registered any more, so that its scores cannot be explained."
        raise AssayError("model_gone", message, status=409)
    asked.principal.require_model(row.model.name)
    options = SyncOptions.from_json(row.report.get("options", {}))
    found = _explained(asked, row.model, item.query, item.document, options, keep_texts=False)
    dtype = row.report.get("dtype", "")
    notes = _changes(revision=row.model_revision, dtype=dtype, answer=found.answer)
    if unkept := row.report.get("texts_not_kept"):
        notes.append(f"The request also gave {', '.join(unkept)}, which is not kept: the pair is scored without.")
    return _beside(found, item.raw_score, dtype, notes)


def _beside(found: Explanation, raw: float | None, dtype: str, notes: list[str]) -> Explanation:
    """The explanation with the stored score, and a sentence if the two differ."""
    now, model = found.item.raw_score, found.answer.model
    if model.kind == ModelKind.LISTWISE or (raw is None) != (now is None):
        agrees = None
    else:
        given = max(TOLERANCE.get(each, TOLERANCE["float32"]) for each in (dtype, found.answer.reply.dtype))
        agrees = raw is None or now is None or abs(raw - now) <= given * max(1.0, abs(raw))
    if agrees is False:
        notes = [f"The pair scores {now:.6g} now; the stored score is {raw:.6g}. The new score is explained.", *notes]
    return replace(found, stored=StoredScore(raw, agrees), notes=[*notes, *found.notes])


def _changes(*, revision: str, dtype: str, answer: ScoringAnswer) -> list[str]:
    reply, notes = answer.reply, []
    if revision and reply.revision and revision != reply.revision:
        notes.append(
            f"The model's weights are not those of the stored score: it is of revision {revision[:12]}, this of "
            f"{reply.revision[:12]}."
        )
    if dtype and reply.dtype and dtype != reply.dtype:
        notes.append(f"The stored score was computed in {dtype}, this one in {reply.dtype}.")
    return notes


def _changed_settings(stage: Stage, model: ScoringModel) -> list[str]:
    changed = changed_settings(stage.settings, model_snapshot(model))
    shown = [name.replace("_", " ") for name in changed if name != "revision"]
    return [f"Settings of the model have changed since: {', '.join(shown)}."] if shown else []


def _about_kind(model: ScoringModel) -> list[str]:
    if model.is_remote:
        return ["A server elsewhere computes this model; it gives the score and does not say why."]
    if model.kind == ModelKind.LISTWISE:
        return [
            "This model reads the documents of a query together, so that a document alone scores otherwise: the row "
            "below holds this document only, and its score is not compared with the stored one."
        ]
    return []
