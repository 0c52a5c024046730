"""“Why this rank”: what is drawn of an explanation, and the pages that have none to draw."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Team
from scoring.models import ScoreRequest
from scoring.payloads import SyncExplanation, SyncMatches, SyncTokenRow
from scoring.web.heat import MOST_COLUMNS, Ceiling, ceiling_of, heat_map
from tests.web.conftest import World, text_of


def explanation(values: list[list[float]]) -> SyncExplanation:
    """Of ``[CLS] word`` × ``[CLS] word …``, every document token but the last compared."""
    similarities = np.array(values, dtype="<f4")
    m, d = similarities.shape
    best = similarities.argmax(axis=1).tolist()
    return SyncExplanation(
        rows=[
            SyncTokenRow(
                role="query", token_ids=list(range(m)), texts=[" q"] * m, uses=["special"] + ["text"] * (m - 1)
            ),
            SyncTokenRow(
                role="document", token_ids=list(range(d + 1)), texts=[" un", "seen"] + [" d"] * (d - 1),
                uses=[*["text"] * d, "skipped"],
            ),
        ],
        matches=SyncMatches(
            similarities=base64.b64encode(similarities.tobytes()).decode(),
            query_places=list(range(m)),
            document_places=list(range(d)),
            best=best,
            contributions=[float(similarities[i, j]) for i, j in enumerate(best)],
        ),
    )  # fmt: skip


def test_steps_count_the_cells_on_one_range_and_sum_to_the_score() -> None:
    first, second = explanation([[0.5, -0.2, 0.1], [0.1, 0.4, 0.2]]), explanation([[1.0, 0.0, 0.5], [0.0, 0.0, 0.1]])
    ceiling = ceiling_of([first, second])
    assert ceiling == Ceiling(1.0, 1.0)
    heat = heat_map(first, ceiling, name="heat-0")
    assert heat is not None and heat.total == pytest.approx(0.9)
    assert [each.cells for each in heat.query] == [
        [(5, True), (0, False), (1, False)],
        [(1, False), (4, True), (2, False)],
    ]
    assert [(token.step, token.counted) for token in heat.document] == [(5, 1), (4, 1), (0, 0), (None, 0)]
    assert heat.document[1].joined and not heat.document[0].joined and heat.document[3].grey
    assert heat.query[0].token.grey and heat.query[1].match == "seen"
    assert heat.data == {"all": [5, 4, 0], "rows": [[5, 0, 1], [1, 4, 2]], "best": [0, 1]}


def test_of_a_long_document_the_surroundings_of_counted_tokens_are_drawn() -> None:
    values = np.zeros((2, MOST_COLUMNS + 200), dtype=np.float32)
    values[0, 100], values[1, 600] = 0.5, 0.25
    heat = heat_map(explanation(values.tolist()), Ceiling(0.5, 0.5), name="heat-0")
    assert heat is not None and heat.windowed and heat.left_out == MOST_COLUMNS + 200 - len(heat.columns)
    assert [token.gap for token in heat.document].count(True) == 2
    counted = [place for place, token in enumerate(heat.columns) if token.counted]
    assert counted == heat.data["best"] and heat.columns[counted[1]].step == 5


def test_a_ranking_links_to_why_and_the_page_says_why_not(browser_client: Client, world: World) -> None:
    listed = browser_client.get(reverse("web:job_detail", args=[world.job.pk]))
    assert "Why this rank" in text_of(listed)
    url = reverse("web:job_explanation", args=[world.job.pk])
    assert browser_client.get(url, {"query": "q1", "document": "nothing"}).status_code == 404
    world.documents.texts_delete_requested_at = timezone.now()
    world.documents.save(update_fields=["texts_delete_requested_at"])
    page = browser_client.get(url, {"query": "q1", "document": "d1"})
    assert page.status_code == 200 and "The texts of this job were deleted" in text_of(page)
    assert not ScoreRequest.objects.exists()


def test_another_teams_pairs_are_not_found(stranger: Client, world: World, team: Team) -> None:
    row = ScoreRequest.objects.create(team=team, endpoint="/score", model_name="late", status_code=200)
    pair = {"query": "q1", "document": "d1"}
    assert stranger.get(reverse("web:job_explanation", args=[world.job.pk]), pair).status_code == 404
    assert stranger.get(reverse("web:item_explanation", args=[row.pk, 0])).status_code == 404
