"""What is computed of a comparison: arrays over the positions of its queries, from the stored ranks alone."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from scoring.models import Comparison, JudgementSet, QueryResult, Stage
from scoring.ranking import POSITION
from scoring.selectors.comparability import comparability
from scoring.selectors.comparison_statistics import MeasureTable, measure_table, measures_beside
from scoring.selectors.evaluation import judgement_grades, measures_parse, stage_evaluate
from scoring.selectors.evaluations import values_kept
from scoring.selectors.packed import packed_part
from scoring.similarity import Pair, Rankings, kendall_tau, largest_moves, overlap_at, rank_biased_overlap
from scoring.states import JobState
from scoring.statistics import PairedTest

MAX_DEPTH: Final = 1_000  # below it no measure changes by anything that one would see
MAX_RANKS: Final = 2_000_000  # of one stage: what is computed while somebody waits
FEWEST_RANKS: Final = 10  # of a query, however many queries there are
BLOCK: Final = 200_000  # ranks at once
CONTENT: Final = 2  # what is computed; another number computes what is kept anew


@dataclass(frozen=True, slots=True)
class Measured:
    """``arrays`` by name, NaN where there is no number; S stages, S - 1 pairs of the baseline with another, Q queries.

    ``lengths`` int32 [S, Q]; ``rbo``, ``rbo_top``, ``overlap``, ``tau`` float32 [S - 1, Q]; ``shared`` int32 [S - 1, Q]
    of documents in both; ``moved`` int32 [S - 1, 3, Q], a document's position and its ranks in both; ``moved_weight``
    float32 [S - 1, Q]. With judgements ``values`` float64 [S, measures, Q] in the order of ``table.measures``.
    """

    depth: int
    arrays: dict[str, Any]
    table: MeasureTable | None = None

    def packed(self) -> bytes:
        file = io.BytesIO()
        table = {"table": np.array(self.table.packed())} if self.table else {}
        arrays: dict[str, Any] = {**self.arrays, **table, "depth": np.int64(self.depth)}
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    @classmethod
    def unpack(cls, content: bytes) -> Measured:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        table = arrays.pop("table", None)
        return cls(int(arrays.pop("depth")), arrays, None if table is None else MeasureTable.unpack(str(table)))

    @property
    def judged(self) -> bool:
        return self.table is not None


def measures_fingerprint(comparison: Comparison, stages: Sequence[Stage]) -> str:
    """Changes when a stage was ranked anew, with the baseline and what decides; the judgements never change, and when
    they are deleted what was computed with them stays."""
    parts = [f"{stage.pk} {stage.finished_at} {stage.job.state}" for stage in stages]
    decides = f"{comparison.primary_measure} {comparison.test} {CONTENT}"
    return hashlib.sha256("\n".join([*parts, decides]).encode()).hexdigest()


def measures_of(stages: Sequence[Stage], judgements: JudgementSet | None, *, primary: str, test: str) -> Measured:
    """Raises AssayError 422 for judgements of none of the queries, and for a measure that is not computed here."""
    queries = stages[0].job.query_count
    compared = comparability(stages)
    affordable = max(MAX_RANKS // max(queries, 1), FEWEST_RANKS)
    depth = min(compared.depth or MAX_DEPTH, MAX_DEPTH, affordable)
    arrays = _blank(len(stages), queries)
    step = max(BLOCK // depth, 1)
    for start in range(0, queries, step):
        block = range(start, min(start + step, queries))
        rankings = [_rankings(stage, block, depth) for stage in stages]
        arrays["lengths"][:, block.start : block.stop] = [ranking.lengths for ranking in rankings]
        for place, other in enumerate(rankings[1:] if compared.ranks else []):
            _measure(arrays, place, slice(block.start, block.stop), Pair.of(rankings[0], other))
    if judgements is None:
        return Measured(depth, arrays)
    arrays["values"], table = _judged(stages, judgements, queries, primary, PairedTest(test))
    return Measured(depth, arrays, table)


def _blank(stages: int, queries: int) -> dict[str, Any]:
    pairs = (stages - 1, queries)
    arrays: dict[str, Any] = {name: np.full(pairs, np.nan, np.float32) for name in ("rbo", "rbo_top", "overlap", "tau")}
    arrays["shared"] = np.zeros(pairs, np.int32)
    arrays["moved"] = np.full((stages - 1, 3, queries), -1, np.int32)
    arrays["moved_weight"] = np.zeros(pairs, np.float32)
    return {**arrays, "lengths": np.zeros((stages, queries), np.int32)}


def _measure(arrays: dict[str, Any], place: int, at: slice, pair: Pair) -> None:
    arrays["rbo"][place, at] = rank_biased_overlap(pair, 0.9)
    arrays["rbo_top"][place, at] = rank_biased_overlap(pair, 0.5)
    arrays["overlap"][place, at] = overlap_at(pair, 10)
    arrays["tau"][place, at] = kendall_tau(pair)
    arrays["shared"][place, at] = pair.shared
    moves = largest_moves(pair)
    arrays["moved"][place, :, at] = [moves.documents, moves.first_ranks, moves.second_ranks]
    arrays["moved_weight"][place, at] = moves.weights


def _rankings(stage: Stage, queries: range, depth: int) -> Rankings:
    """The first ``depth`` ranks of these queries; a query without a result has none."""
    rows = QueryResult.objects.filter(
        stage=stage, query_position__gte=queries.start, query_position__lt=queries.stop
    ).order_by("query_position")
    lengths, parts = np.zeros(len(queries), np.int64), [b""]
    for position, packed in rows.values_list(
        "query_position", packed_part("positions", POSITION.itemsize, count=depth)
    ):
        lengths[position - queries.start] = len(packed) // POSITION.itemsize
        parts.append(packed)
    return Rankings(np.frombuffer(b"".join(parts), POSITION).astype(np.int64), lengths)


def _judged(
    stages: Sequence[Stage], judgements: JudgementSet, queries: int, primary: str, test: PairedTest
) -> tuple[Any, MeasureTable]:
    parsed = measures_parse(measures_beside(primary), rel=judgements.relevant_from, grades=judgement_grades(judgements))
    names = [str(measure) for measure in parsed]
    values = np.full((len(stages), len(names), queries), np.nan)
    for row, stage in enumerate(stages):
        kept = values_kept(stage, judgements, measures=names)
        if kept is None:
            measured = stage_evaluate(stage, judgements, measures=names)
            kept = measured.positions, measured.values
        positions, found = kept
        values[row][:, positions] = found
    complete = [stage.job.state == JobState.COMPLETED for stage in stages]
    return values, measure_table(values, names, complete, test)
