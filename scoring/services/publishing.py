"""What was judged in a pool becomes the next version of its judgement set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection, transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.judging import grade_combined
from scoring.models import Judgement, JudgementSet, JudgingRule, Pool, Verdict, VerdictSource
from scoring.selectors.agreement import INDEPENDENT, pool_agreement
from scoring.selectors.pools import Pair
from scoring.services.transitions import transition_record
from scoring.states import SetState

BY_PEOPLE: Final = (VerdictSource.BLIND, VerdictSource.SEEN, VerdictSource.IMPORTED)
JUDGED: Final = "judged"  # as the format of a set that came from no file


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing would give. ``changed``: grades that the newest version has not, or has otherwise; ``waiting``:
    pairs with some verdicts, but fewer than the quorum; ``ungraded``: pairs of which the verdicts give no grade.
    ``models``: whose grades are in the version, of earlier ones too."""

    version: int
    newest: JudgementSet | None
    grades: dict[Pair, int]
    changed: int
    waiting: int
    ungraded: int
    judges: dict[str, int]
    models: list[str]
    sources: dict[str, int]


def publication_of(pool: Pool, *, sources: Collection[str] = BY_PEOPLE) -> Publication:
    """Verdicts of ``sources`` combined by the pool's rule; adjudications always count, and decide."""
    newest = _newest(pool)
    verdicts = Verdict.objects.filter(pair__pool=pool, source__in={*sources, VerdictSource.ADJUDICATED})
    rows = verdicts.order_by("pk").values_list(
        "pair__query_id", "pair__document_id", "source", "grade", "judge__name", "judge__model__name"
    )
    # Where the first judge's grade counts, one who saw ranks, or a model, never comes before one who judged blind.
    blind_first = sorted(rows, key=lambda row: row[2] not in INDEPENDENT)
    given: dict[Pair, list[int | None]] = {}
    rulings: dict[Pair, int | None] = {}
    judges, counted = Counter[str](), Counter[str]()
    models = set(newest.provenance.get("models", ())) if newest else set()
    for query_id, document_id, source, grade, judge, model in blind_first:
        models |= {model} if model else set()
        judges[judge] += 1
        counted[source] += 1
        if source == VerdictSource.ADJUDICATED:
            rulings[query_id, document_id] = grade
        else:
            given.setdefault((query_id, document_id), []).append(grade)
    waiting = {pair for pair, own in given.items() if len(own) < pool.quorum} - rulings.keys()
    grades: dict[Pair, int] = {}
    for pair in (given.keys() | rulings.keys()) - waiting:
        known = [grade for grade in given.get(pair, ()) if grade is not None]
        combined = rulings[pair] if pair in rulings else grade_combined(JudgingRule(pool.rule), known)
        if combined is not None:
            grades[pair] = combined
    return Publication(
        version=JudgementSet.next_version(newest.root) if newest else 1,
        newest=newest,
        grades=grades,
        changed=len(grades.items() - _known(newest, grades).items()),
        waiting=len(waiting),
        ungraded=len((given.keys() | rulings.keys()) - waiting - grades.keys()),
        judges=dict(judges),
        models=sorted(models),
        sources=dict(counted),
    )


def pool_publish(
    *, principal: Principal, pool: Pool, sources: Collection[str] = BY_PEOPLE, accept_models: bool = False
) -> JudgementSet:
    """A new version: the newest one's judgements with the pool's grades in it. The newest one stays as it is.
    ``accept_models``: whoever publishes knows how far the models among ``sources`` agree with people.

    Raises AssayError 409 ``models_not_accepted``, ``nothing_to_publish``.
    """
    if VerdictSource.MODEL in sources and not accept_models:
        _refuse_models(pool)
    with transaction.atomic():
        pool = Pool.objects.select_for_update(of=("self",)).select_related("base").get(pk=pool.pk)
        if pool.base is not None:  # two pools of one set take turns
            list(JudgementSet.objects.select_for_update().filter(root=pool.base.root).order_by("pk").only("pk"))
        found = publication_of(pool, sources=sources)
        if not found.changed:
            waiting = f"; {found.waiting:,} pairs wait for further judges" if found.waiting else ""
            message = f"No grade in '{pool.name}' is new{waiting}. Judge some of its pairs first."
            raise AssayError("nothing_to_publish", message, status=409)
        published = _version(principal, pool, found, sources)
        Pool.objects.filter(pk=pool.pk).update(base=published)
        counts = {"version": published.version, "grades": found.changed}
        audit_record(verb="judgement_set.published", principal=principal, target=published, detail=counts)
    return published


def _refuse_models(pool: Pool) -> None:
    """Says how far each model agrees with people, if one judged."""
    told = [
        f"{two.first} and people: {two.found.sentence or f'kappa {two.found.kappa:.2f}, n = {two.found.n:,}.'}"
        for two in pool_agreement(pool).models
        if two.second is None
    ]
    if told:
        message = (
            f"Grades of models would count as people's do. {' '.join(told)} "
            'Send "accept_models": true to count them, or leave "model" out of "sources".'
        )
        raise AssayError("models_not_accepted", message, status=409, param="accept_models")


def _version(principal: Principal, pool: Pool, found: Publication, sources: Collection[str]) -> JudgementSet:
    newest = found.newest
    line: dict[str, Any] = {"root": newest.root, "version": found.version} if newest else {}
    published = JudgementSet.objects.create(
        **line,
        team=principal.team,
        created_by=principal.user,
        name=newest.name if newest else pool.name,
        file_format=JUDGED,
        scale=pool.scale,
        relevant_from=pool.relevant_from,
        guidelines=pool.guidelines,
        provenance={
            "made": JUDGED,
            "pool": {"id": str(pool.pk), "name": pool.name, "sources": pool.sources},
            "base": newest and {"id": str(newest.pk), "version": newest.version},
            "rule": pool.rule,
            "quorum": pool.quorum,
            "verdicts": found.sources,
            "left_out": sorted({*VerdictSource.values} - {*sources, VerdictSource.ADJUDICATED}),
            "judges": found.judges,
            "models": found.models,
            "grades": found.changed,
            "waiting": found.waiting,
            "ungraded": found.ungraded,
        },
    )
    if newest is not None:
        _copy(newest, published)
    start = newest.counts.get("kept", 0) if newest else 0
    Judgement.objects.bulk_create(
        (
            Judgement(
                judgement_set=published, position=start + place, query_id=pair[0], document_id=pair[1], grade=grade
            )
            for place, (pair, grade) in enumerate(sorted(found.grades.items()))
        ),
        batch_size=2_000,
        update_conflicts=True,
        update_fields=["grade"],
        unique_fields=["judgement_set", "query_id", "document_id"],
    )
    kept = Judgement.objects.filter(judgement_set=published).count()
    published.counts = {"read": kept, "kept": kept, "bad": 0, "duplicate": 0, "empty": 0}
    published.state = SetState.READY
    published.save(update_fields=["counts", "state"])
    transition_record(published, SetState.RECEIVING, SetState.READY, actor=principal.label, reason="published").save()
    return published


def _copy(source: JudgementSet, target: JudgementSet) -> None:
    """In the database: a set may have millions of judgements."""
    table = Judgement._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (judgement_set_id, position, query_id, document_id, grade) "
            f"SELECT %s, position, query_id, document_id, grade FROM {table} WHERE judgement_set_id = %s",
            [target.pk, source.pk],
        )


def _newest(pool: Pool) -> JudgementSet | None:
    if pool.base is None:
        return None
    versions = JudgementSet.objects.filter(root=pool.base.root, state=SetState.READY)
    return versions.order_by("-version").first()


def _known(newest: JudgementSet | None, grades: dict[Pair, int]) -> dict[Pair, int]:
    if newest is None:
        return {}
    queries = {query_id for query_id, _ in grades}
    rows = Judgement.objects.filter(judgement_set=newest, query_id__in=queries)
    known = {(row[0], row[1]): row[2] for row in rows.values_list("query_id", "document_id", "grade").iterator()}
    return {pair: known[pair] for pair in grades if pair in known}
