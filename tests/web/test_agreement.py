"""Agreement of a pool's judges: coefficients, conflicts, decisions, and a model that judges beside people."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from accounts.models import Membership, Team
from accounts.scopes import Role
from assay.errors import AssayError
from scoring.models import Job, Judge, ModelJudging, Pool, PoolPair, ScoringModel, Verdict, VerdictSource
from scoring.models.scoring_model import ModelKind
from scoring.selectors.agreement import conflicts_queue, pool_agreement
from scoring.selectors.comparability import comparability
from scoring.services.evaluations import evaluation_create
from scoring.services.finalize import jobs_advance
from scoring.services.judging import judge_of, verdict_write
from scoring.services.model_judges import grade_of, model_judge_ask, model_judgings_store
from scoring.services.pools import pool_create
from scoring.services.publishing import pool_publish
from tests.web import factories
from tests.web.conftest import World, text_of

PAIRS = 12
# Of the pairs by place, what the two people say. They differ by two grades once and by one twice.
ADA = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 1]
BEN = [0, 0, 0, 0, 1, 1, 2, 2, 3, 2, 1, 2]


@pytest.fixture
def pool(analyst: User) -> Pool:
    documents = "id,text\n" + "".join(f"d{i},kettle number {i}\n" for i in range(PAIRS))
    run = "".join(f"q1 Q0 d{i} {i + 1} {100 - i} x\n" for i in range(PAIRS))
    return pool_create(
        principal=factories.principal(analyst),
        run_set=factories.imported(analyst, "runs", run, name="Run", file_name="x.run"),
        query_set=factories.imported(analyst, "queries", "id\ttext\nq1\tkettle\n", name="Q", file_name="q.tsv"),
        document_set=factories.imported(analyst, "documents", documents, name="D", file_name="d.csv"),
        name="The first documents of every ranking that we have, judged by two people at the least",
        k=PAIRS,
        quorum=2,
    )


@pytest.fixture
def judged(pool: Pool, analyst: User, team: Team) -> Pool:
    ben = User.objects.create_user("ben")
    Membership.objects.create(user=ben, team=team, role=Role.ANALYST)
    for user, grades in ((analyst, ADA), (ben, BEN)):
        _judge(pool, judge_of(pool, user), grades, VerdictSource.BLIND)
    return pool


def _judge(pool: Pool, judge: Judge, grades: list[int], source: VerdictSource) -> None:
    for pair, grade in zip(pool.pairs.order_by("pk"), grades, strict=True):
        verdict_write(pair=pair, judge=judge, grade=grade, source=source)


@pytest.fixture
def pages(analyst: User) -> Client:
    client = Client()
    client.force_login(analyst)
    return client


def test_agreement_by_hand_and_the_pairs_behind_each_number(judged: Pool, pages: Client) -> None:
    found = pool_agreement(judged)
    (two,) = found.two
    assert two.found.n == PAIRS and two.found.raw == 9 / 12 and found.people.doubly_judged == PAIRS
    # Observed: 1 + 4 + 1. Expected: the sum of (a - b)² over all 144 combinations of a grade of each, over 12.
    expected = sum((a - b) ** 2 for a in ADA for b in BEN) / 12
    assert two.found.kappa == pytest.approx(1 - 6 / expected)
    assert (found.conflicts, found.serious) == (3, 1)
    page = text_of(pages.get(f"/pools/{judged.pk}/agreement/"))
    assert f"κ {two.found.kappa:.3f}" in page and f"{found.people.alpha:.3f}" in page and "n = 12" in page
    cell = f"?first={two.first.pk}&second={two.second.pk if two.second else 0}&row=3&column=1"
    shown = pages.get(f"/pools/{judged.pk}/conflicts/{cell}")
    assert [conflict.spread for conflict, _ in shown.context["rows"]] == [2]
    assert pages.get(f"/pools/{judged.pk}/conflicts/?first={two.first.pk}&row=9&column=0").status_code == 404
    assert pages.get(f"/pools/{judged.pk}/conflicts/?first=x&row=0&column=0").status_code == 404


def test_a_conflict_is_decided_and_the_decision_taken_back(judged: Pool, pages: Client) -> None:
    queue = conflicts_queue(judged)
    rows = list(judged.pairs.order_by("pk"))
    assert queue[0] == rows[10].pk and set(queue[1:]) == {rows[9].pk, rows[11].pk}
    page = pages.get(f"/pools/{judged.pk}/conflicts/")
    assert [conflict.pair.pk for conflict, _ in page.context["rows"]] == queue
    decide = f"/pools/{judged.pk}/adjudicate/?page=1"
    assert pages.post(decide, {"pair": queue[0], "grade": "2"}).status_code == 302
    assert conflicts_queue(judged) == queue[1:] and pool_agreement(judged).serious == 0
    ruling = Verdict.objects.get(source=VerdictSource.ADJUDICATED)
    assert (ruling.pair_id, ruling.grade, ruling.judge.name) == (queue[0], 2, "analyst")
    assert Verdict.objects.filter(pair=queue[0]).count() == 3  # it stands beside what the judges said
    pages.post(decide, {"pair": queue[0], "grade": "3"})
    assert Verdict.objects.get(source=VerdictSource.ADJUDICATED).grade == 3
    assert pages.post(decide, {"pair": queue[0], "grade": "9"}).status_code == 404
    pages.post(decide, {"pair": queue[0], "grade": ""})
    assert conflicts_queue(judged) == queue


def test_few_pairs_get_words_and_no_coefficient(pool: Pool, analyst: User, pages: Client) -> None:
    assert "No pair has two judgements" in text_of(pages.get(f"/pools/{pool.pk}/agreement/"))


def test_what_was_seen_ranked_is_not_counted(judged: Pool) -> None:
    before = pool_agreement(judged)
    eve = judge_of(judged, User.objects.create_user("eve"))
    _judge(judged, eve, [3] * PAIRS, VerdictSource.SEEN)
    assert pool_agreement(judged).people == before.people


@pytest.mark.parametrize(("score", "grade"), [(-1.0, 0), (0.25, 1), (0.49, 1), (0.5, 2), (0.9, 3)])
def test_a_score_has_the_grade_whose_cut_off_it_reaches(score: float, grade: int) -> None:
    assert grade_of(score, [0.25, 0.5, 0.75]) == grade


@pytest.fixture
def reader(world: World, analyst: User) -> ScoringModel:
    return factories.served_model(analyst, world.worker, name="reader", kind=ModelKind.CROSS_ENCODER)


def _run(judging: ModelJudging, world: World) -> None:
    while factories.work(world.worker):
        jobs_advance()
    assert judging.job is not None
    judging.job.refresh_from_db()
    assert judging.job.state == "completed"


def test_a_model_judges_apart_from_people(
    judged: Pool, world: World, reader: ScoringModel, analyst: User, pages: Client
) -> None:
    own = factories.principal(analyst)
    people = pool_agreement(judged).people
    asked = model_judge_ask(principal=own, pool=judged, model=reader, cut_offs=[0.5, 0.6, 0.7])
    with pytest.raises(AssayError, match=r"judges .* now"):
        model_judge_ask(principal=own, pool=judged, model=reader, cut_offs=[0.5, 0.6, 0.7])
    assert model_judgings_store() == 0  # its job has not ended
    _run(asked, world)
    assert model_judgings_store() == 1 and model_judgings_store() == 0
    asked.refresh_from_db()
    assert asked.verdicts == PAIRS and (asked.judge.model_revision, asked.judge.user) == (reader.revision, None)
    # Every document shares the one word of the query, of four in all: 1 / (1 + 3) ** 0.3 is 0.66.
    assert set(Verdict.objects.filter(source=VerdictSource.MODEL).values_list("grade", flat=True)) == {2}
    found = pool_agreement(judged)
    assert found.people == people and found.models[0].second is None and len(found.models) == 3
    said = text_of(pages.get(f"/pools/{judged.pk}/agreement/"))
    assert "reader 01234567" in said and "0.5, 0.6, 0.7" in said
    assert "Count the grades of models too" in text_of(pages.get(f"/pools/{judged.pk}/"))
    alone = pool_publish(principal=own, pool=judged)
    assert alone.judging_models == [] and alone.provenance["verdicts"] == {"blind": 2 * PAIRS}
    assert pages.post(f"/pools/{judged.pk}/publish/", {"models": "on"}).status_code == 302
    judged.refresh_from_db()
    assert judged.base is not None and judged.base.judging_models == ["reader"]
    assert judged.base.version == 2
    scored = asked.job
    assert scored is not None
    scored.refresh_from_db()
    for base, itself in ((judged.base, True), (alone, False)):
        evaluation = evaluation_create(principal=own, stage=scored.last_stage, judgement_set=base)[0]
        page = text_of(pages.get(f"/evaluations/{evaluation.pk}/"))
        assert ("is measured by its own judgements" in page) is evaluation.judged_by_itself is itself
        remarks = comparability(list(scored.stages.all()), base).remarks
        assert any(remark.text == "Measured by judgements that it gave itself: reader." for remark in remarks) is itself


def test_a_model_that_judges_again_says_it_anew(
    judged: Pool, world: World, reader: ScoringModel, analyst: User
) -> None:
    own = factories.principal(analyst)
    for cut_offs in ([0.5, 0.6, 0.7], [0.1, 0.2, 0.3]):
        _run(model_judge_ask(principal=own, pool=judged, model=reader, cut_offs=cut_offs), world)
        assert model_judgings_store() == 1
    assert set(Verdict.objects.filter(source=VerdictSource.MODEL).values_list("grade", flat=True)) == {3}
    assert Judge.objects.filter(model=reader).count() == 1


@pytest.mark.parametrize(
    ("model", "cut_offs", "code"),
    [
        ("late", [0.1, 0.2, 0.3], "wrong_model_kind"),
        ("reader", [0.1, 0.2], "bad_cut_offs"),
        ("reader", [0.1, 0.3, 0.2], "bad_cut_offs"),
        ("reader", [0.1, 0.2, float("inf")], "bad_cut_offs"),
    ],
)
def test_a_model_that_cannot_judge_is_refused(
    pool: Pool, reader: ScoringModel, analyst: User, model: str, cut_offs: list[float], code: str
) -> None:
    with pytest.raises(AssayError) as refusal:
        model_judge_ask(
            principal=factories.principal(analyst), pool=pool, model=ScoringModel.objects.get(name=model),
            cut_offs=cut_offs,
        )  # fmt: skip
    assert refusal.value.code == code and not ModelJudging.objects.exists() and not Job.objects.filter(
        name__contains="judges"
    ).exists()  # fmt: skip


def test_the_form_of_a_model_as_judge(judged: Pool, reader: ScoringModel, pages: Client) -> None:
    path = f"/pools/{judged.pk}/model-judge/"
    for cut_offs in ("x", "0.1"):
        assert pages.post(path, {"model": "reader", "cut_offs": cut_offs}).status_code == 302
        assert not ModelJudging.objects.exists()
    assert pages.post(path, {"model": "reader", "cut_offs": "0.25, 0.5, 0.75"}).status_code == 302
    assert ModelJudging.objects.get().cut_offs == [0.25, 0.5, 0.75]


def test_another_team_finds_nothing(judged: Pool, stranger: Client) -> None:
    pair = PoolPair.objects.filter(pool=judged)[0].pk
    tries: list[Any] = [
        stranger.get(f"/pools/{judged.pk}/agreement/"),
        stranger.get(f"/pools/{judged.pk}/conflicts/"),
        stranger.post(f"/pools/{judged.pk}/adjudicate/", {"pair": pair, "grade": "1"}),
        stranger.post(f"/pools/{judged.pk}/model-judge/", {"model": "reader", "cut_offs": "0.1,0.2,0.3"}),
    ]
    assert [answer.status_code for answer in tries] == [404] * 4
    assert not Verdict.objects.filter(source=VerdictSource.ADJUDICATED).exists()
