"""Why a pair has its score: what is shown is of the run that gave the score, and sums to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engine.golden.checkpoints import DOCUMENTS, QUERIES, build
from tests.engine.tiny_pairs import build_cross_encoder
from workers.engine import (
    Engine,
    EngineConfig,
    ItemStatus,
    LongDocuments,
    ModelKind,
    ModelSpec,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
)
from workers.engine.explanation_types import PairExplanation, TokenUse

LAYOUTS = ("pylate-bert", "pylate-bert-unexpanded")
QUERY, DOCUMENT = "who makes honey?", "Bees gather nectar, and honey is what they make of it."


@pytest.fixture(scope="module")
def engine(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("bi", tiny_folders["bert"], ModelKind.BI_ENCODER))
    engine.load(ModelSpec("judge", tiny_folders["llama"], ModelKind.GENERATIVE))
    pair = build_cross_encoder("bert", tmp_path_factory.mktemp("pair"))
    engine.load(ModelSpec("pair", pair, ModelKind.CROSS_ENCODER))
    for layout in LAYOUTS:
        folder = build(layout, tmp_path_factory.mktemp(layout))
        engine.load(ModelSpec(layout, folder, ModelKind.LATE_INTERACTION, dtype="float32", check_order=False))
    yield engine
    engine.close()


def explained(
    engine: Engine, model: str, query: str, document: str, **options: object
) -> tuple[ScoringOutput, PairExplanation]:
    """With the output of the same pair asked without an explanation, which must be the same to the bit."""
    request = ScoringRequest(model, (query,), (document,), options=ScoringOptions(**options))  # type: ignore[arg-type]
    plain = engine.submit(request).result(60)
    asked = ScoringRequest(model, (query,), (document,), options=request.options, explain=True)
    output = engine.submit(asked).result(60)
    assert plain.explanations is None and output.explanations is not None
    assert output.raw_scores.tobytes() == plain.raw_scores.tobytes()
    return output, output.explanations[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_contributions_sum_to_pylates_score(engine: Engine, layout: str) -> None:
    golden = json.loads((Path(__file__).parent / "golden" / "pylate.json").read_text())["layouts"][layout]
    for query, document in ((0, 0), (2, 2)):
        output, why = explained(engine, layout, QUERIES[query], DOCUMENTS[document])
        matches = why.matches
        assert matches is not None
        assert sum(matches.contributions) == pytest.approx(float(output.raw_scores[0]), abs=1e-4)
        assert sum(matches.contributions) == pytest.approx(golden["scores"][query][document], abs=1e-4)
        rows = np.arange(len(matches.best))
        assert (matches.similarities[rows, list(matches.best)] == matches.similarities.max(axis=1)).all()
        for row, places, side, index in (
            (why.rows[0], matches.query_places, "queries", query),
            (why.rows[1], matches.document_places, "documents", document),
        ):
            assert [row.token_ids[place] for place in places] == golden[side][index]["ids"]
            skipped = {place for place, use in enumerate(row.uses) if use is TokenUse.SKIPPED}
            assert skipped == set(range(len(row.uses))) - set(places)
        expansion = why.rows[0].uses.count(TokenUse.EXPANSION)
        assert (expansion > 0) == (layout == "pylate-bert")
        assert why.rows[0].uses[0] is TokenUse.SPECIAL


def test_the_rows_are_the_texts_and_the_cut_end_is_named(engine: Engine) -> None:
    output, why = explained(engine, "bi", QUERY, DOCUMENT, max_tokens_per_document=4)
    assert [row.role for row in why.rows] == ["query", "document"]
    own = "".join(text for text, use in zip(why.rows[1].texts, why.rows[1].uses, strict=True) if use is TokenUse.TEXT)
    assert output.truncated_tokens[0] > 0 and DOCUMENT.endswith(why.cut_document) and why.cut_document
    assert "".join((own + why.cut_document).split()).lower() == "".join(DOCUMENT.split()).lower()
    (part,) = why.parts
    assert (part.name, part.score) == ("dense", float(output.raw_scores[0]))
    assert why.matches is None and why.terms is None


def test_models_that_read_both_texts_show_the_row_that_they_read(engine: Engine) -> None:
    _, why = explained(engine, "pair", QUERY, DOCUMENT)
    (row,) = why.rows
    assert row.role == "prompt" and row.uses.count(TokenUse.SPECIAL) == 3 and not why.parts
    output, why = explained(engine, "judge", QUERY, DOCUMENT)
    assert QUERY in "".join(why.rows[0].texts) and DOCUMENT in "".join(why.rows[0].texts)
    assert output.labels is not None and output.labels.probabilities[0].sum() == pytest.approx(1)


def test_of_a_long_document_the_best_window_is_shown(engine: Engine) -> None:
    options = {"max_tokens_per_document": 8, "long_documents": LongDocuments.CHUNK_MAX, "chunk_overlap": 0}
    output, why = explained(engine, "pylate-bert", QUERY, f"{DOCUMENT} {DOCUMENT}", **options)
    assert why.matches is not None
    assert sum(why.matches.contributions) == pytest.approx(float(output.raw_scores[0]), abs=1e-4)


def test_an_empty_text_has_no_score_to_explain(engine: Engine) -> None:
    output, why = explained(engine, "pylate-bert", QUERY, "   ")
    assert output.status[0] == ItemStatus.EMPTY and why.matches is None and why.parts == ()
