"""Pools of pairs to judge are made, closed, opened again and deleted here."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any, Final

from django.db import transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import DocumentSet, JudgementSet, JudgingRule, Pool, PoolPair, QuerySet, RunSet, Stage
from scoring.models.judgement_set import GRADES_NAMED, default_scale
from scoring.selectors.evaluation import is_ranked
from scoring.selectors.pools import DEEPEST, pool_candidates
from scoring.selectors.texts import texts_gone
from scoring.services.transitions import transition
from scoring.states import PoolState

USUAL_DEPTH: Final = 10
LONGEST_GUIDELINES: Final = 20_000
GRADE_CHARACTERS: Final = 60
MOST_STAGES: Final = 10


def pool_sets(stages: Sequence[Stage], *, query_set: QuerySet | None, document_set: DocumentSet | None) -> Any:
    """The query set and the document set of a pool of ``stages``, or those given where there are no stages.

    Raises AssayError 422 ``not_poolable`` for several of either, or none; 409 ``job_not_ended`` or ``texts_deleted``.
    """
    if len(stages) > MOST_STAGES:
        raise _not_poolable(f"{len(stages)} rankings were given; give {MOST_STAGES} at most", "stages")
    for stage in stages:
        if not is_ranked(stage):
            message = f"'{stage}' of job '{stage.job.name}' has no rankings; make a pool of it when its job has ended."
            raise AssayError("job_not_ended", message, status=409, param="stages")
    queries = {stage.job.query_set for stage in stages} | ({query_set} if query_set else set())
    documents = {stage.job.document_set for stage in stages} | ({document_set} if document_set else set())
    for noun, found in (("query set", queries), ("document set", documents)):
        if len(found) != 1:
            names = ", ".join(sorted(f"'{one.name}'" for one in found)) or "none"
            raise _not_poolable(f"A pool has one {noun}; given: {names}", "stages")
        if any(texts_gone(one) for one in found):
            message = f"The texts of the {noun} are deleted, so that nobody could judge them; upload the file again."
            raise AssayError("texts_deleted", message, status=409, param="stages")
    return queries.pop(), documents.pop()


def pool_create(
    *,
    principal: Principal,
    stages: Sequence[Stage] = (),
    run_set: RunSet | None = None,
    query_set: QuerySet | None = None,
    document_set: DocumentSet | None = None,
    k: int = USUAL_DEPTH,
    query_ids: Collection[str] = (),
    base: JudgementSet | None = None,
    name: str = "",
    scale: Sequence[str] | None = None,
    relevant_from: int | None = None,
    guidelines: str | None = None,
    quorum: int = 1,
    rule: JudgingRule | None = None,
) -> Pool:
    """The first ``k`` of ``stages`` and of ``run_set``, without what ``base`` grades, in an order that tells nothing.

    Scale, threshold and guidelines are the base's where they are not given. Raises AssayError 422 ``not_poolable``,
    ``bad_scale``, ``bad_pool``, ``no_such_query``, ``pool_too_large`` or ``nothing_to_judge``; 409 ``job_not_ended``.
    """
    queries, documents = pool_sets(stages, query_set=query_set, document_set=document_set)
    if not stages and run_set is None:
        raise _not_poolable("No ranking was given; give stages of jobs, an uploaded run, or both", "stages")
    grades = _scale(scale if scale is not None else (base.scale if base and base.scale else default_scale()))
    threshold = relevant_from if relevant_from is not None else base.relevant_from if base else 1
    _check(k=k, quorum=quorum, threshold=threshold, grades=grades)
    if base:
        _check_base(base, grades)
    found = pool_candidates(
        stages=stages, run_set=run_set, query_set=queries, document_set=documents, depth=k, base=base,
        query_ids=query_ids,
    )  # fmt: skip
    if not found:
        message = (
            f"Nothing is left to judge among the first {k:,} of these rankings: their documents are graded by the base "
            "already, have no text, or are in neither set. Take a larger k, no base, or rankings of these sets."
        )
        raise AssayError("nothing_to_judge", message, status=422, param="k")
    labels = [f"{stage} of {stage.job.name}" for stage in stages] + ([run_set.name] if run_set else [])
    with transaction.atomic():
        pool = Pool.objects.create(
            team=principal.team,
            created_by=principal.user,
            name=name or f"First {k} of {', '.join(labels)}"[:200],
            query_set=queries,
            document_set=documents,
            base=base,
            scale=grades,
            relevant_from=threshold,
            guidelines=guidelines if guidelines is not None else base.guidelines if base else "",
            quorum=quorum,
            rule=rule or (JudgingRule.SINGLE if quorum == 1 else JudgingRule.MEDIAN),
            sources=[{"stage": stage.pk, "job": str(stage.job_id), "name": str(stage), "k": k} for stage in stages]
            + ([{"run_set": str(run_set.pk), "name": run_set.name, "k": k}] if run_set else []),
        )
        PoolPair.objects.bulk_create(
            (
                PoolPair(pool=pool, place=place, query_id=pair[0], document_id=pair[1], origin=found[pair])
                for place, pair in enumerate(shuffled(list(found)))
            ),
            batch_size=2_000,
        )
        audit_record(verb="pool.created", principal=principal, target=pool, detail={"pairs": len(found)})
    return pool


def shuffled(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Query by query, so that a judge keeps one question in mind; queries, and documents of each, in random order."""
    drawn = random.SystemRandom()
    turn = {query_id: drawn.random() for query_id, _ in pairs}
    return sorted(pairs, key=lambda pair: (turn[pair[0]], drawn.random()))


def pool_close(*, principal: Principal, pool: Pool) -> None:
    """From now on no pair is handed out. Raises AssayError 409 ``pool_closed`` if it is closed."""
    _move(principal, pool, PoolState.CLOSED)


def pool_open(*, principal: Principal, pool: Pool) -> None:
    """Raises AssayError 409 ``pool_open`` if it is open."""
    _move(principal, pool, PoolState.OPEN)


def pool_delete(*, principal: Principal, pool: Pool) -> None:
    """With its verdicts; what was published of it stays."""
    with transaction.atomic():
        audit_record(verb="pool.deleted", principal=principal, target=pool, detail={"pairs": pool.pairs.count()})
        pool.delete()


def _move(principal: Principal, pool: Pool, to: PoolState) -> None:
    done = "closed" if to == PoolState.CLOSED else "opened"
    with transaction.atomic():
        if pool.state == to or not transition(pool, to, actor=principal.label, reason=done):
            raise AssayError(f"pool_{to}", f"Pool '{pool.name}' is {to} already.", status=409)
        audit_record(verb=f"pool.{done}", principal=principal, target=pool)


def _scale(names: Sequence[str]) -> list[str]:
    grades = [" ".join(name.split()) for name in names]
    if len(grades) not in GRADES_NAMED:
        raise _bad_scale(f"{len(grades)} grades were given; give {GRADES_NAMED[0]} to {GRADES_NAMED[-1]} names")
    if unfit := next((name for name in grades if not 1 <= len(name) <= GRADE_CHARACTERS), None):
        raise _bad_scale(f"The name {unfit[:80]!r} is too long; give up to {GRADE_CHARACTERS} characters")
    if "" in grades or len(set(grades)) < len(grades):
        raise _bad_scale("Two grades have one name, or one has none; name each differently")
    return grades


def _check_base(base: JudgementSet, grades: Sequence[str]) -> None:
    """A version has one scale: what is judged later must mean what was judged before."""
    if len(grades) != len(base.scale):
        has = f"{len(base.scale)} grades" if base.scale else f"more than the {GRADES_NAMED[-1]} grades that a pool has"
        raise _bad_scale(
            f"'{base.name}' has {has}, and {len(grades)} were given, so that the next version would mix two scales; "
            "give as many names, or no base"
        )


def _check(*, k: int, quorum: int, threshold: int, grades: Sequence[str]) -> None:
    limits = (("k", k, 1, DEEPEST), ("quorum", quorum, 1, 5), ("relevant_from", threshold, 1, len(grades) - 1))
    for field, value, least, most in limits:
        if not least <= value <= most:
            message = f"'{field}' is {value:,}; give a whole number from {least} to {most:,}."
            raise AssayError("bad_pool", message, status=422, param=field)


def _bad_scale(sentence: str) -> AssayError:
    return AssayError("bad_scale", f"{sentence}, the worst grade first.", status=422, param="scale")


def _not_poolable(sentence: str, param: str) -> AssayError:
    return AssayError("not_poolable", f"{sentence}.", status=422, param=param)
