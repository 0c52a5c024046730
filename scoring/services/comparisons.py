"""Comparisons are made, changed and deleted here, and what is computed of them is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.db import transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import ComparedStage, Comparison, ComparisonMeasures, ComparisonTest, JudgementSet, Stage
from scoring.selectors.comparison_measures import Measured, measures_fingerprint, measures_of
from scoring.selectors.comparison_statistics import JUDGED
from scoring.selectors.comparisons import (
    comparisons_of,
    judgements_deleted,
    judgements_newer,
    stages_compared,
)
from scoring.selectors.evaluation import DEFAULT_MEASURES, is_ranked, judgement_grades, measures_parse

FEWEST: Final = 2
MOST: Final = 4
FEWEST_TUKEY: Final = 3  # of two it is the randomisation test


def comparison_create(
    *,
    principal: Principal,
    stages: Sequence[Stage],
    name: str = "",
    judgement_set: JudgementSet | None = None,
    pinned: bool = False,
    notes: str = "",
    primary_measure: str = DEFAULT_MEASURES[0],
    test: str = ComparisonTest.T,
) -> Comparison:
    """Compare ``stages`` of the principal's team, the baseline first, and keep what was computed. ``primary_measure``
    and ``test`` decide, and stay what they are.

    Raises AssayError 422 ``not_comparable`` for fewer than two, more than four, one twice, several query sets, or too
    few for the test, 409 ``job_not_ended`` for a stage without its rankings, 422 ``judgements_do_not_match`` and
    ``unknown_measure``.
    """
    _check(stages)
    if test == ComparisonTest.RANDOMISED_TUKEY and len(stages) < FEWEST_TUKEY:
        message = (
            f"A randomised Tukey test is of three or four rankings, {len(stages)} were given; give 'randomisation'."
        )
        raise AssayError("not_comparable", message, status=422, param="test")
    primary = _primary(primary_measure, judgement_set)
    measured = measures_of(stages, judgement_set, primary=primary, test=test)
    with transaction.atomic():
        comparison = Comparison.objects.create(
            team=principal.team,
            created_by=principal.user,
            name=name or _named(stages),
            judgement_set=judgement_set,
            pinned=pinned,
            notes=notes,
            primary_measure=primary,
            test=test,
        )
        columns = (ComparedStage(comparison=comparison, stage=stage, position=i) for i, stage in enumerate(stages))
        ComparedStage.objects.bulk_create(columns)
        _keep(comparison, measures_fingerprint(comparison, stages), measured)
        audit_record(verb="comparison.created", principal=principal, target=comparison)
    return comparisons_of(principal).get(pk=comparison.pk)


def comparison_recompute(*, principal: Principal, comparison: Comparison) -> Comparison:
    """The same comparison with the newest version of its judgements, as a comparison of its own: the old one keeps its
    numbers. Raises AssayError 409 ``not_stale`` where there is no newer version, and as ``comparison_create``."""
    newer = judgements_newer(comparison)
    if newer is None:
        message = f"'{comparison.name}' was computed with the newest version of its judgements; there is nothing to do."
        raise AssayError("not_stale", message, status=409)
    return comparison_create(
        principal=principal, stages=stages_compared(comparison), name=comparison.name, judgement_set=newer,
        notes=comparison.notes, primary_measure=comparison.primary_measure, test=comparison.test,
    )  # fmt: skip


def comparison_change(*, principal: Principal, comparison: Comparison, **fields: Any) -> Comparison:
    """Set ``name``, ``pinned`` or ``notes``. The stages and the judgements stay what they are."""
    changed = [name for name, value in fields.items() if getattr(comparison, name) != value]
    for name in changed:
        setattr(comparison, name, fields[name])
    if not changed:
        return comparison
    with transaction.atomic():
        comparison.save(update_fields=changed)
        audit_record(verb="comparison.changed", principal=principal, target=comparison, detail={"changed": changed})
    return comparison


def comparison_set_baseline(*, principal: Principal, comparison: Comparison, position: int) -> Comparison:
    """Put the stage of that position first; the others keep their order. Raises AssayError 422 ``no_such_stage``, 409
    ``judgements_deleted`` where the differences from another baseline cannot be computed any more."""
    columns = list(comparison.compared.all())
    if not 0 <= position < len(columns):
        message = f"'baseline' is {position}; this comparison has the positions 0 to {len(columns) - 1}."
        raise AssayError("no_such_stage", message, status=422, param="baseline")
    if judgements_deleted(comparison, comparison_measures(comparison=comparison)):
        message = f"The judgements of '{comparison.name}' were deleted; its numbers stay, from the baseline they have."
        raise AssayError("judgements_deleted", message, status=409, param="baseline")
    columns.insert(0, columns.pop(position))
    for place, column in enumerate(columns):
        column.position = place
    with transaction.atomic():
        ComparedStage.objects.bulk_update(columns, ["position"])
        detail = {"changed": ["baseline"]}
        audit_record(verb="comparison.changed", principal=principal, target=comparison, detail=detail)
    return comparisons_of(principal).get(pk=comparison.pk)


def comparison_delete(*, principal: Principal, comparison: Comparison) -> None:
    with transaction.atomic():
        audit_record(verb="comparison.deleted", principal=principal, target=comparison)
        comparison.delete()


def comparison_measures(*, comparison: Comparison) -> Measured | None:
    """As kept, or computed anew when rankings, baseline or judgements have changed; None while a stage of it is ranked
    anew, and when only one is left."""
    stages = stages_compared(comparison)
    if len(stages) < FEWEST or not all(map(is_ranked, stages)):
        return None
    fingerprint = measures_fingerprint(comparison, stages)
    kept = ComparisonMeasures.objects.filter(comparison=comparison, fingerprint=fingerprint).first()
    if kept is not None:
        return Measured.unpack(bytes(kept.arrays))
    measured = measures_of(stages, comparison.judgement_set, primary=comparison.primary_measure, test=comparison.test)
    _keep(comparison, fingerprint, measured)
    return measured


def _named(stages: Sequence[Stage]) -> str:
    """After what differs: the rankings, else those of one name with their jobs, of one name too with their times."""
    ways = (
        lambda stage: str(stage),
        lambda stage: f"{stage} of {stage.job.name}",
        lambda stage: f"{stage} of {stage.job.name}, {stage.finished_at:%Y-%m-%d %H:%M:%S}",
    )
    names = [str(stage) for stage in stages]
    for way in ways:
        names = [way(stage) if names.count(name) > 1 else name for stage, name in zip(stages, names, strict=True)]
    return " vs. ".join(names)[:200]


def _keep(comparison: Comparison, fingerprint: str, measured: Measured) -> None:
    values = {"fingerprint": fingerprint, "arrays": measured.packed()}
    ComparisonMeasures.objects.update_or_create(comparison=comparison, defaults=values)


def _primary(name: str, judgements: JudgementSet | None) -> str:
    """As ir-measures writes it. How much was judged says nothing about which ranking is better."""
    try:
        measure = measures_parse([name], grades=judgement_grades(judgements) if judgements else ())[0]
    except AssayError as refusal:
        refusal.param = "primary_measure"
        raise
    if measure.NAME == JUDGED:
        message = f"'{name}' tells how much was judged, not which ranking is better; choose another primary measure."
        raise AssayError("unknown_measure", message, status=422, param="primary_measure")
    if len(str(measure)) > (most := Comparison._meta.get_field("primary_measure").max_length or 0):
        message = f"'{measure}' has {len(str(measure))} characters; give a primary measure of up to {most}."
        raise AssayError("unknown_measure", message, status=422, param="primary_measure")
    return str(measure)


def _check(stages: Sequence[Stage]) -> None:
    if not FEWEST <= len(stages) <= MOST:
        raise _not_comparable(f"{len(stages)} stages were given; give two to four")
    if len({stage.pk for stage in stages}) < len(stages):
        raise _not_comparable("The same stage was given twice; give each once")
    sets = {stage.job.query_set_id: stage.job.query_set.name for stage in stages}
    if len(sets) > 1:
        raise _not_comparable(f"They rank for different query sets, {', '.join(sets.values())}; choose jobs of one")
    for stage in stages:
        if not is_ranked(stage):
            message = f"'{stage}' of job '{stage.job.name}' has no rankings; compare it when its job has ended."
            raise AssayError("job_not_ended", message, status=409, param="stages")


def _not_comparable(sentence: str) -> AssayError:
    return AssayError("not_comparable", f"{sentence}.", status=422, param="stages")
