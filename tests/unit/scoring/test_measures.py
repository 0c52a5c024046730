"""Measures by hand, and against the libraries on the same ranking written as a run with strictly decreasing scores."""

from __future__ import annotations

import math
from typing import Any

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import AssayError
from scoring.measures import is_condensed, measure_values, measures_parse, measures_split
from scoring.ranking import ranked, strictly_decreasing

GRADES = {"q": {"a": 3, "b": 0, "c": 1, "x": 2}}
RANKING = {"q": ["b", "a", "u", "c"]}  # u is unjudged, x was not found
IDEAL = 3 + 2 / math.log2(3) + 1 / 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nDCG@10", (3 / math.log2(3) + 1 / math.log2(5)) / IDEAL),
        ("nDCG@2", (3 / math.log2(3)) / (3 + 2 / math.log2(3))),
        ("nDCG(gains={2:3,3:7})@10", (7 / math.log2(3) + 1 / math.log2(5)) / (7 + 3 / math.log2(3) + 1 / 2)),
        ("nDCG(gains='exponential')@10", (7 / math.log2(3) + 1 / math.log2(5)) / (7 + 3 / math.log2(3) + 1 / 2)),
        ("RR@10", 1 / 2),
        ("RR@1", 0.0),
        ("RR(judged_only=True)@2", 1 / 2),
        ("AP", (1 / 2 + 2 / 4) / 3),
        ("AP(rel=2)", (1 / 2) / 2),
        ("AP(judged_only=True)", (1 / 2 + 2 / 3) / 3),
        ("P@5", 2 / 5),  # a short list is not divided by its length
        ("P(rel=2)@5", 1 / 5),
        ("R@2", 1 / 3),
        ("R@100", 2 / 3),
        ("Rprec", 1 / 3),
        ("Success@1", 0.0),
        ("Success@5", 1.0),
        ("RBP(p=0.8)", 0.2 * (0.8 + 0.8**3)),
        ("RBP(p=0.5,rel=2)", 0.5 * 0.5),
        ("RBP(p=0.8)@2", 0.2 * 0.8),
        ("RBP(p=0.8,judged_only=True)", 0.2 * (0.8 + 0.8**2)),
        ("Judged@3", 2 / 3),
        ("Judged@10", 3 / 4),  # of four documents three are judged
        ("Bpref", 0.0),  # the only judged non-relevant document stands above both
    ],
)
def test_by_hand(name: str, value: float) -> None:
    (measure,) = measures_parse([name], grades=(0, 1, 2, 3))
    found = measure_values([measure], GRADES, RANKING)
    assert found == {str(measure): {"q": pytest.approx(value, rel=1e-12)}}


def test_names_are_complete_and_each_stands_once() -> None:
    names = ["nDCG(gains='exponential')@10", "P@5", "P(rel=1)@5", "nDCG(judged_only=False)@10"]
    assert list(map(str, measures_parse(names, grades=(0, 1, 2)))) == ["nDCG(gains={2:3})@10", "P@5", "nDCG@10"]
    persistent = ["RBP", "RBP(p=0.8)", "RBP(rel=2,p=0.95)@20", "RBP(rel=1,p=0.5)"]
    assert list(map(str, measures_parse(persistent))) == ["RBP(p=0.8)", "RBP(p=0.95,rel=2)@20", "RBP(p=0.5)"]
    assert list(map(str, measures_parse(["P@5", "P(rel=3)@5", "nDCG@5"], rel=2))) == [
        "P(rel=2)@5", "P(rel=3)@5", "nDCG@5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "nDCG(dcg='exp-log2')@10", "ERR@20", "nDCG@0", "P(rel=0)@5", "nDCG(gains={1:-1})@10", "nDCG(gains={1:1.5})@10",
        "nDCG(gains={1:99999})@10", "P@5@5", "Judged(judged_only=True)@5", "P(judged_only=1)@5", "P",
        "RBP(p=1.0)", "RBP(p=0)", "RBP(p=True)", "RBP(p=2)", "P(p=0.8)@5", "RBP(gains={1:2})",
        "__import__('os')", "nDCG(gains='exponential')@10",
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_by_name(name: str) -> None:
    with pytest.raises(AssayError) as refusal:
        measures_parse([name])
    assert refusal.value.code == "unknown_measure" and refusal.value.status == 422


def test_names_in_a_text() -> None:
    text = "nDCG(gains={1:1,2:3},judged_only=True)@10, P(rel=2)@5,AP"
    assert measures_split(text) == ["nDCG(gains={1:1,2:3},judged_only=True)@10", "P(rel=2)@5", "AP"]


def test_undefined_and_missing() -> None:
    measures = measures_parse(["Judged@10", "nDCG@10", "AP"])
    found = measure_values(measures, {**GRADES, "empty": {"a": 0}, "missing": {"a": 1}}, {"empty": [], "q": ["a"]})
    assert found["Judged@10"] == {"q": 1.0}
    assert found["nDCG@10"].keys() == {"q", "empty", "missing"} and found["AP"]["missing"] == 0.0


NAMES = [
    "nDCG@3", "nDCG@10", "nDCG(gains={1:1,2:3,3:7})@10", "RR@2", "RR", "AP", "AP(rel=2)", "AP@4", "P@5", "P(rel=3)@5",
    "R@2", "R(rel=2)@100", "Success@1", "Rprec", "Bpref", "Bpref(rel=2)",
]  # fmt: skip
CONDENSED = ["nDCG(judged_only=True)@3", "AP(judged_only=True)", "P(judged_only=True,rel=2)@2"]
queries = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0000001, 16777216.0, -3.0, math.nan]), max_size=14),
        st.dictionaries(st.integers(0, 16), st.integers(0, 3), max_size=10),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=150)
@given(queries)
def test_values_are_those_of_the_libraries_to_the_last_bit(rows: list[tuple[list[float], dict[int, int]]]) -> None:
    rankings, runs, grades = {}, {}, {}
    for place, (raw, judged) in enumerate(rows):
        scores = np.array(raw, np.float32)
        order = ranked(scores)
        filled = np.nan_to_num(scores[order], nan=float(np.finfo(np.float32).max))
        documents = [f"d{one}" for one in order.tolist()]
        rankings[f"q{place}"] = documents
        runs[f"q{place}"] = dict(zip(documents, map(float, strictly_decreasing(filled)), strict=True))
        if judged:
            grades[f"q{place}"] = {f"d{one}": grade for one, grade in judged.items()}
    runs = {query: run for query, run in runs.items() if run}
    measures = measures_parse(NAMES + CONDENSED)
    ours = measure_values(measures, grades, rankings)
    theirs: dict[str, dict[str, float]] = {str(measure): {} for measure in measures}
    by_hand = [*map(ir_measures.parse_measure, NAMES + CONDENSED)]
    if grades:
        for metric in ir_measures.iter_calc(by_hand, grades, runs):
            theirs[str(metric.measure)][metric.query_id] = metric.value
    assert ours == theirs
    _equal_pytrec_eval(ours, grades, runs)


def _equal_pytrec_eval(ours: Any, grades: Any, runs: Any) -> None:
    names = {"ndcg_cut_10": "nDCG@10", "map": "AP", "recip_rank": "RR", "P_5": "P@5", "bpref": "Bpref"}
    for query, values in pytrec_eval.RelevanceEvaluator(grades, set(names)).evaluate(runs).items():
        for theirs, name in names.items():
            assert values[theirs] == ours[name][query]


def test_condensed_measures_are_told_apart() -> None:
    parsed = measures_parse(["Bpref", "AP(judged_only=True)", "AP"])
    assert list(map(is_condensed, parsed)) == [True, True, False]
