"""Effectiveness measures: which there are, and their values of rankings. The computation is that of ir-measures and
trec_eval; ours is the order it is fed, what it must not be asked, what it leaves undefined, and rank-biased precision
(Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, TOIS 2008).

A name says everything, as ir-measures writes it: ``nDCG@10``, ``P(rel=2)@5``, ``nDCG(gains={2:3,3:7})@10``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import ir_measures
import numpy as np
from ir_measures import Measure
from ir_measures.measures import ParamInfo

from assay.errors import AssayError

DEFAULT_MEASURES: Final = ("nDCG@10", "RR@10", "R@100", "Judged@10")
OFFERED: Final = (
    "nDCG@5", "nDCG@10", "nDCG@20", "RR@10", "AP", "P@5", "P@10", "R@10", "R@100", "R@1000", "Success@1", "Success@5",
    "RBP(p=0.8)", "RBP(p=0.95)", "Judged@5", "Judged@10", "Judged@20",
)  # fmt: skip
INCOMPLETE_OFFERED: Final = ("nDCG(judged_only=True)@10", "AP(judged_only=True)", "Bpref")
EXPONENTIAL: Final = "nDCG(gains='exponential')@10"
MEASURES: Final = ("nDCG", "RR", "AP", "P", "R", "Success", "Judged", "Rprec", "Bpref", "RBP")
WITH_LEVEL: Final = ("RR", "AP", "P", "R", "Success", "Rprec", "Bpref", "RBP")  # those that ask from which grade on
PARAMETERS: Final = {"cutoff": range(1, 100_001), "rel": range(1, 32_768)}
GAINS: Final = range(32_768)  # trec_eval reserves memory by the largest one
MAX_MEASURES: Final = 20
BETWEEN: Final = re.compile(r",(?![^({]*[)}])")  # names in a list; commas within brackets belong to a name

PERSISTENCE: Final = 0.8  # what ir-measures takes for a p that is not given

Grades = Mapping[str, Mapping[str, int]]  # query id -> document id -> grade
Rankings = Mapping[str, Sequence[str]]  # query id -> document ids, best first


class RankBiasedPrecision(Measure):
    """``p``, the persistence, always stands in its name. ir-measures knows the measure, and leaves its computation to
    packages that are not here."""

    NAME = __name__ = "RBP"
    SUPPORTED_PARAMS: ClassVar = {  # type: ignore[misc]
        "p": ParamInfo(dtype=float, required=True),
        "rel": ParamInfo(dtype=int),
        "judged_only": ParamInfo(dtype=bool),
        "cutoff": ParamInfo(dtype=int),
    }


def measures_parse(names: Sequence[str], *, rel: int = 1, grades: Collection[int] = ()) -> list[Measure]:
    """In the order given, each once. ``rel``, where it is not 1, is the level of those that ask for one and name none;
    ``grades`` are those that ``gains='exponential'`` stands for.

    Raises AssayError 422 for what ir-measures does not know, and for what it would hand to other programs.
    """
    if not 1 <= len(names) <= MAX_MEASURES:
        raise _unknown(f"{len(names)} measures were asked for, between 1 and {MAX_MEASURES} are possible")
    return list(dict.fromkeys(_measure(name, rel, grades) for name in names))


def measure_named(name: str) -> Measure:
    """Of a complete name, as ``measures_parse`` makes them and evaluations keep them."""
    return _measure(name, 1, ())


def measures_split(text: str) -> list[str]:
    """The names in a text that has commas between them."""
    return [name.strip() for name in BETWEEN.split(text)]


def _measure(name: str, rel: int, grades: Collection[int]) -> Measure:
    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError) as error:
        raise _unknown(f"'{name}' cannot be read ({error})") from error
    if measure.NAME not in MEASURES:
        raise _unknown(f"'{name}' is not computed here")
    params = dict(measure.params)
    kind = type(measure)
    if measure.NAME == "RBP":
        kind, params = RankBiasedPrecision, {"p": PERSISTENCE} | params
    if params.get("gains") == "exponential":
        params["gains"] = _exponential(name, grades)
    for parameter, value in params.items():
        _check(name, measure, parameter, value)
    if rel != 1 and measure.NAME in WITH_LEVEL:
        params.setdefault("rel", rel)
    # What says nothing has no place in a name: two names of one measure would be two measures.
    silent = {"judged_only": False, "rel": 1, "gains": {}}
    found = kind(**{key: value for key, value in params.items() if silent.get(key) != value})
    _validate(found, name)
    return found


def _check(name: str, measure: Measure, parameter: str, value: Any) -> None:
    """The computation is C code that trusts its caller: a cut-off of 0 ends the process."""
    if parameter in PARAMETERS:
        if isinstance(value, bool) or not isinstance(value, int) or value not in PARAMETERS[parameter]:
            least, most = PARAMETERS[parameter][0], PARAMETERS[parameter][-1]
            raise _unknown(f"the {parameter} of '{name}' is {value}, it must be between {least} and {most:,}")
    elif parameter == "judged_only" and measure.NAME not in ("Judged", "Bpref"):
        if not isinstance(value, bool):
            raise _unknown(f"judged_only of '{name}' is {value}, it must be True or False")
    elif parameter == "p" and measure.NAME == "RBP":
        if not isinstance(value, float) or not 0 < value < 1:
            raise _unknown(f"p of '{name}' is {value}, it must be between 0 and 1, without them, as in RBP(p=0.8)")
    elif parameter == "gains" and measure.NAME == "nDCG":
        whole = isinstance(value, dict) and all(type(one) is int for pair in value.items() for one in pair)
        if not whole or not all(gain in GAINS for gain in value.values()):
            raise _unknown(
                f"the gains of '{name}' must say a whole number from 0 to {GAINS[-1]:,} for grades, as in "
                "{1:1,2:3}, or 'exponential'"
            )
    else:
        raise _unknown(f"'{name}' is not computed here")


def _validate(measure: Measure, name: str) -> None:
    try:
        measure.validate_params()
    except AssertionError as error:
        raise _unknown(f"'{name}' cannot be read ({error})") from error


def _exponential(name: str, grades: Collection[int]) -> dict[int, int]:
    if not grades:
        raise _unknown(f"'{name}' is possible only where there are judgements, whose grades it stands for")
    if any(2**grade - 1 not in GAINS for grade in grades if grade > 0):
        raise _unknown(f"'{name}' is possible for grades up to 15, the highest here is {max(grades)}")
    return {grade: 2**grade - 1 for grade in sorted(grades) if grade > 1}


def _unknown(what: str) -> AssayError:
    return AssayError(
        "unknown_measure",
        f"{what[0].upper()}{what[1:]}. Give {', '.join(MEASURES)} with a cut-off (@k) and rel, such as nDCG@10, "
        "RR@10, P(rel=2)@5, nDCG(gains={1:1,2:3})@10.",
        status=422,
        param="measures",
    )


def is_condensed(measure: Measure) -> bool:
    """Whether it looks at judged documents alone."""
    return measure.NAME == "Bpref" or bool(measure.params.get("judged_only"))


def cutoff_of(measure: Measure) -> int | None:
    cutoff: int | None = measure.params.get("cutoff")
    return cutoff


def measure_values(measures: Iterable[Measure], grades: Grades, rankings: Rankings) -> dict[str, dict[str, float]]:
    """Values of every query in ``grades`` by measure: measure -> query id -> value; no entry where there is none, which
    Judged has for an empty list. A query without a ranking counts 0. ``grades`` hold no negative ones.

    ``judged_only`` filters the ranks before anything is measured, so that every measure has it in the same way.
    """
    plain = [measure for measure in measures if not measure.params.get("judged_only")]
    condensed = {_without(measure): str(measure) for measure in measures if measure.params.get("judged_only")}
    values = _computed([measure for measure in plain if measure.NAME != "Judged"], grades, rankings)
    values |= {
        str(measure): judged_shares(cutoff_of(measure), grades, rankings)
        for measure in plain
        if measure.NAME == "Judged"
    }
    if condensed:
        kept = {query: [one for one in ranking if one in grades.get(query, ())] for query, ranking in rankings.items()}
        found = _computed(list(condensed), grades, kept)
        values |= {name: found[str(measure)] for measure, name in condensed.items()}
    return values


def _without(measure: Measure) -> Measure:
    return type(measure)(**{key: value for key, value in measure.params.items() if key != "judged_only"})


def _computed(measures: list[Measure], grades: Grades, rankings: Rankings) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(grades, 0.0) for measure in measures}
    for measure in measures:
        if isinstance(measure, RankBiasedPrecision):
            values[str(measure)] = {
                query: rank_biased_precision(measure, own, rankings.get(query, ())) for query, own in grades.items()
            }
    measures = [measure for measure in measures if not isinstance(measure, RankBiasedPrecision)]
    if not measures or not grades:
        return values
    judged = {query: dict(own) for query, own in grades.items()}
    run = {
        query: {document: -float(rank) for rank, document in enumerate(ranking, start=1)}
        for query, ranking in rankings.items()
        if query in grades and ranking
    }
    for metric in ir_measures.iter_calc(measures, judged, run):
        values[str(metric.measure)][metric.query_id] = metric.value
    return values


def rank_biased_precision(measure: RankBiasedPrecision, grades: Mapping[str, int], ranking: Sequence[str]) -> float:
    """(1 - p) times the sum of p^(rank - 1) over the relevant documents: what somebody gains per document looked at who
    goes on to the next one with the chance p."""
    p, level = measure.params["p"], measure.params.get("rel", 1)
    hits = [place for place, document in enumerate(ranking[: cutoff_of(measure)]) if grades.get(document, 0) >= level]
    return float((1 - p) * (p ** np.array(hits, np.float64)).sum())


def judged_shares(cutoff: int | None, grades: Grades, rankings: Rankings) -> dict[str, float]:
    """Judged@k: of the first ``cutoff`` documents, or all there are, the share that is judged; none for no document."""
    shares = {}
    for query, own in grades.items():
        if top := rankings.get(query, ())[:cutoff]:
            shares[query] = sum(document in own for document in top) / len(top)
    return shares
