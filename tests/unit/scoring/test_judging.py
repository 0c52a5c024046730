"""Pools, hand-outs, verdicts and what is published of them, on a real database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.judging import grade_combined
from scoring.models import Judgement, JudgementSet, JudgingRule, PairClaim, Pool, PoolPair, RunSet, VerdictSource
from scoring.selectors.pools import pool_progress
from scoring.services.judging import (
    judge_of,
    pair_put_off,
    pairs_claim,
    verdict_give,
    verdict_seen,
    verdict_undo,
    verdict_write,
)
from scoring.services.pools import pool_close, pool_create
from scoring.services.publishing import BY_PEOPLE, pool_publish, publication_of
from scoring.services.sets import set_delete
from tests.unit.scoring.conftest import Upload

RUN = b"".join(b"q%d Q0 d%d %d %d x\n" % (q, d, d + 1, 100 - d) for q in (1, 2) for d in range(8))
QRELS = b"q1 0 d0 2\nq1 0 d1 -1\nq2 0 d3 0\n"


@pytest.mark.parametrize(
    ("rule", "grades", "expected"),
    [
        (JudgingRule.SINGLE, [2, 0, 0], 2),
        (JudgingRule.MAJORITY, [3, 1, 3], 3),
        (JudgingRule.MAJORITY, [3, 1], 1),
        (JudgingRule.MEDIAN, [0, 3, 2], 2),
        (JudgingRule.MEDIAN, [1, 3], 1),
        (JudgingRule.MEAN, [1, 2], 1),
        (JudgingRule.MEAN, [3, 3, 1], 2),
        (JudgingRule.ADJUDICATED, [3, 3], None),
        (JudgingRule.MEDIAN, [], None),
    ],
)
def test_several_grades_become_one_by_the_rule_and_doubts_lower_it(
    rule: JudgingRule, grades: list[int], expected: int | None
) -> None:
    assert grade_combined(rule, grades) == expected


@pytest.fixture
def judges(principal: Principal) -> list[Principal]:
    return [replace(principal, user=User.objects.create_user(name)) for name in ("ada", "ben", "cyd")]


@pytest.fixture
def base(upload: Upload) -> Any:
    return upload("judgements", QRELS)


@pytest.fixture
def pool(principal: Principal, upload: Upload, base: Any) -> Pool:
    return _pool(principal, upload, base=base)


def _pool(principal: Principal, upload: Upload, **options: Any) -> Pool:
    documents = b"id,text\n" + b"".join(b"d%d,text %d\n" % (i, i) for i in range(7)) + b"d7,\n"
    return pool_create(
        principal=principal, run_set=upload("runs", RUN), document_set=upload("documents", documents),
        query_set=upload("queries", b"id,text\nq1,first\nq2,second\n"), k=options.pop("k", 8), **options,
    )  # fmt: skip


@pytest.mark.django_db
def test_a_pool_is_the_first_k_without_what_is_judged_and_what_has_no_text(pool: Pool) -> None:
    pairs = {(pair.query_id, pair.document_id) for pair in pool.pairs.all()}
    # d7 is empty; (q1, d0) and (q2, d3) are graded; (q1, d1) was in a pool and not judged.
    assert pairs == {(q, f"d{d}") for q in ("q1", "q2") for d in range(7)} - {("q1", "d0"), ("q2", "d3")}
    queries = list(pool.pairs.order_by("place").values_list("query_id", flat=True))
    assert queries in ([*["q1"] * 6, *["q2"] * 6], [*["q2"] * 6, *["q1"] * 6])


@pytest.mark.django_db
def test_a_pool_may_be_of_one_query_and_refuses_what_leaves_nothing(principal: Principal, upload: Upload) -> None:
    pool = _pool(principal, upload, query_ids=["q2"], k=3)
    assert {pair.query_id for pair in pool.pairs.all()} == {"q2"}
    assert pool.pairs.count() == 3
    for options, code in (
        ({"k": 0}, "bad_pool"),
        ({"quorum": 6}, "bad_pool"),
        ({"scale": ["only"]}, "bad_scale"),
        ({"scale": ["same", "same"]}, "bad_scale"),
        ({"relevant_from": 4}, "bad_pool"),
    ):
        with pytest.raises(AssayError) as refusal:
            pool_create(
                principal=principal, run_set=None, stages=[], query_set=pool.query_set, document_set=pool.document_set
            )
        assert refusal.value.code == "not_poolable"
        with pytest.raises(AssayError) as refusal:
            pool_create(
                principal=principal, run_set=_run(pool), query_set=pool.query_set, document_set=pool.document_set,
                **options,
            )  # fmt: skip
        assert refusal.value.code == code


def _run(pool: Pool) -> RunSet:
    return RunSet.objects.get(pk=pool.sources[0]["run_set"])


@pytest.mark.django_db
def test_a_pair_stays_with_its_judge_until_it_is_judged_put_off_or_expired(pool: Pool, judges: list[Principal]) -> None:
    ada, ben, _ = judges
    first = pairs_claim(principal=ada, pool=pool)[0]
    assert pairs_claim(principal=ada, pool=pool) == [first]
    assert first not in pairs_claim(principal=ben, pool=pool, count=25)
    PairClaim.objects.filter(user=ben.user).delete()

    pair_put_off(principal=ada, pair=first)
    mine = pairs_claim(principal=ada, pool=pool, count=25)
    assert (len(mine), mine[-1]) == (12, first)

    PairClaim.objects.filter(user=ada.user).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert len(pairs_claim(principal=ben, pool=pool, count=25)) == 12
    with pytest.raises(AssayError) as refusal:
        verdict_give(principal=ada, pair=first, grade=1)
    assert refusal.value.code == "pair_taken"


@pytest.mark.django_db
def test_a_verdict_can_be_changed_and_taken_back(pool: Pool, judges: list[Principal]) -> None:
    ada, ben, _ = judges
    one, other = pairs_claim(principal=ada, pool=pool, count=2)
    verdict_give(principal=ada, pair=one, grade=3)
    verdict_give(principal=ada, pair=one, grade=None)
    verdict_give(principal=ada, pair=other, grade=2)
    assert verdict_undo(principal=ada, pool=pool) == other
    assert pairs_claim(principal=ada, pool=pool)[0] == other
    progress = pool_progress(pool, ada.user)
    assert (progress.pairs, progress.done, progress.mine, progress.left) == (12, 1, 1, 11)
    assert [(one.judge.name, one.graded, one.cannot) for one in progress.judges] == [("ada", 0, 1)]
    for principal, pair, grade, code in ((ben, one, 1, "pair_taken"), (ada, other, 4, "bad_grade")):
        with pytest.raises(AssayError) as refusal:
            verdict_give(principal=principal, pair=pair, grade=grade)
        assert refusal.value.code == code
    pool_close(principal=ada, pool=pool)
    with pytest.raises(AssayError) as refusal:
        pairs_claim(principal=ada, pool=pool)
    assert refusal.value.code == "pool_closed"
    with pytest.raises(AssayError) as refusal:
        pairs_claim(principal=replace(ada, user=None), pool=pool)
    assert refusal.value.code == "no_judge"


@pytest.mark.django_db(transaction=True)
def test_judges_at_the_same_time_never_get_a_pair_beyond_the_quorum(
    principal: Principal, upload: Upload, judges: list[Principal]
) -> None:
    pool = _pool(principal, upload, quorum=2, k=7)

    def judge(one: Principal) -> int:
        given = 0
        try:
            while pairs := pairs_claim(principal=one, pool=pool, count=2):
                for pair in pairs:
                    verdict_give(principal=one, pair=pair, grade=given % 4)
                    given += 1
        finally:
            connection.close()
        return given

    with ThreadPoolExecutor(3) as threads:
        counts = list(threads.map(judge, judges))
    verdicts = {pair.pk: pair.verdicts.count() for pair in pool.pairs.all()}
    assert set(verdicts.values()) == {2}
    assert sum(counts) == 28


@pytest.mark.django_db
def test_publishing_makes_the_next_version_and_leaves_the_last_one_as_it_is(
    pool: Pool, judges: list[Principal], base: JudgementSet
) -> None:
    ada = judges[0]
    with pytest.raises(AssayError) as refusal:
        pool_publish(principal=ada, pool=pool)
    assert refusal.value.code == "nothing_to_publish"
    pair = PoolPair.objects.get(pool=pool, query_id="q1", document_id="d1")
    other = PoolPair.objects.get(pool=pool, query_id="q1", document_id="d2")
    verdict_give(principal=ada, pair=pair, grade=3)
    verdict_give(principal=ada, pair=other, grade=None)
    second = pool_publish(principal=ada, pool=pool)
    assert (second.root, second.version, second.name) == (base.root, 2, base.name)
    assert _grades(second) == {("q1", "d0"): 2, ("q1", "d1"): 3, ("q2", "d3"): 0}
    assert _grades(base) == {("q1", "d0"): 2, ("q1", "d1"): -1, ("q2", "d3"): 0}
    assert (second.provenance["grades"], second.provenance["ungraded"]) == (1, 1)
    assert second.provenance["judges"] == {"ada": 2}

    verdict_give(principal=ada, pair=other, grade=1)
    pool.refresh_from_db()
    assert (publication_of(pool).version, publication_of(pool).changed) == (3, 1)
    assert _grades(pool_publish(principal=ada, pool=pool)) == {**_grades(second), ("q1", "d2"): 1}


@pytest.mark.django_db
def test_what_waits_for_further_judges_is_not_published_unless_it_was_adjudicated(
    principal: Principal, upload: Upload, judges: list[Principal]
) -> None:
    pool = _pool(principal, upload, quorum=2)
    ada, ben, _ = judges
    one, two, three = pool.pairs.order_by("place")[:3]
    for pair in (one, two, three):
        verdict_give(principal=ada, pair=pair, grade=1)
    verdict_give(principal=ben, pair=one, grade=3)
    assert ben.user is not None
    verdict_write(pair=three, judge=judge_of(pool, ben.user), grade=0, source=VerdictSource.ADJUDICATED)
    found = publication_of(pool)
    assert (set(found.grades.values()), found.changed, found.waiting) == ({0, 1}, 2, 1)


@pytest.mark.django_db
def test_the_first_judge_is_one_who_judged_blind(pool: Pool, judges: list[Principal]) -> None:
    ada, ben, _ = judges
    pair = pool.pairs.order_by("place")[0]
    assert ada.user is not None
    verdict_write(pair=pair, judge=judge_of(pool, ada.user), grade=3, source=VerdictSource.SEEN)
    assert set(publication_of(pool).grades.values()) == {3}
    verdict_give(principal=ben, pair=pair, grade=1)
    assert set(publication_of(pool).grades.values()) == {1}


@pytest.mark.django_db
def test_the_number_of_a_deleted_version_never_comes_again(principal: Principal, pool: Pool, judges: Any) -> None:
    first, second = PoolPair.objects.filter(pool=pool)[:2]
    verdict_give(principal=judges[0], pair=first, grade=2)
    set_delete(principal=principal, uploaded=pool_publish(principal=principal, pool=pool))
    verdict_give(principal=judges[0], pair=second, grade=1)
    pool.refresh_from_db()
    again = pool_publish(principal=principal, pool=pool)
    assert again.version == 3
    set_delete(principal=principal, uploaded=again)
    assert set(JudgementSet.objects.values_list("version", "highest_gone")) == {(1, 3)}


@pytest.mark.django_db
def test_ids_of_queries_that_are_not_there_are_named(principal: Principal, pool: Pool) -> None:
    sets: dict[str, Any] = {"run_set": _run(pool), "query_set": pool.query_set, "document_set": pool.document_set}
    with pytest.raises(AssayError, match="has no query 'q3', 'q4'; give ids of its file") as refused:
        pool_create(principal=principal, **sets, query_ids=["q4", "q1", "q3"])
    assert (refused.value.code, refused.value.status) == ("no_such_query", 422)
    one = pool_create(principal=principal, **sets, query_ids=["q1"])
    assert set(one.pairs.values_list("query_id", flat=True)) == {"q1"}


@pytest.mark.django_db
def test_a_pool_whose_base_is_deleted_publishes_after_the_version_that_is_left(
    principal: Principal, upload: Upload, base: Any, judges: list[Principal]
) -> None:
    first = _pool(principal, upload, base=base)
    second = pool_create(
        principal=principal, run_set=_run(first), query_set=first.query_set, document_set=first.document_set, base=base
    )
    for pool, pair, grade in ((first, ("q1", "d2"), 1), (second, ("q1", "d3"), 2)):
        there = PoolPair.objects.get(pool=pool, query_id=pair[0], document_id=pair[1])
        verdict_give(principal=judges[0], pair=there, grade=grade)
    newer = pool_publish(principal=principal, pool=first)
    set_delete(principal=principal, uploaded=base)
    second.refresh_from_db()
    newest = pool_publish(principal=principal, pool=second)
    assert (newest.root, newest.version) == (newer.root, 3)
    assert _grades(newest) == {**_grades(newer), ("q1", "d3"): 2}


@pytest.mark.django_db
def test_a_pool_has_as_many_grades_as_its_base(principal: Principal, pool: Pool, base: Any) -> None:
    made_of = {"run_set": _run(pool), "query_set": pool.query_set, "document_set": pool.document_set, "base": base}
    with pytest.raises(AssayError, match="has 4 grades, and 2 were given") as refusal:
        pool_create(principal=principal, scale=["no", "yes"], **made_of)
    assert refusal.value.code == "bad_scale"
    assert pool_create(principal=principal, scale=["no", "hardly", "partly", "yes"], **made_of).scale[-1] == "yes"


@pytest.mark.django_db
def test_a_pool_of_nothing_says_all_that_may_be_the_reason(principal: Principal, upload: Upload) -> None:
    pool = _pool(principal, upload)
    strangers = upload("runs", b"q1 Q0 elsewhere 1 9 x\n")
    with pytest.raises(AssayError, match="are in neither set") as refusal:
        pool_create(principal=principal, run_set=strangers, query_set=pool.query_set, document_set=pool.document_set)
    assert refusal.value.code == "nothing_to_judge"


@pytest.mark.django_db
def test_what_was_seen_ranked_can_be_left_out(job: Any, judges: list[Principal]) -> None:
    ada = judges[0]
    query, documents = job.query_set.queries.first(), list(job.document_set.documents.all()[:2])
    for document, relevant in zip(documents, (True, False), strict=True):
        verdict = verdict_seen(principal=ada, job=job, query=query, document=document, relevant=relevant)
    pool = verdict.pair.pool
    assert (pool.pairs.count(), set(publication_of(pool).grades.values())) == (2, {3, 0})
    blind = [source for source in BY_PEOPLE if source != VerdictSource.SEEN]
    assert publication_of(pool, sources=blind).grades == {}
    verdict_give(principal=ada, pair=verdict.pair, grade=1)
    assert list(publication_of(pool, sources=blind).grades.values()) == [1]
    with pytest.raises(AssayError) as refusal:
        verdict_seen(principal=ada, job=job, query=query, document=documents[1], relevant=True)
    assert refusal.value.code == "judged_blind"


def _grades(judgements: JudgementSet) -> dict[tuple[str, str], int]:
    rows = Judgement.objects.filter(judgement_set=judgements)
    return {(row.query_id, row.document_id): row.grade for row in rows}
