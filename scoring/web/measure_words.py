"""What a measure means, in a sentence, and with one query's numbers put in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ir_measures import Measure

from scoring.measures import cutoff_of

TERMS_SHOWN: Final = 6
Gain = tuple[int, int]  # rank, gain


def meaning(measure: Measure) -> str:
    """A sentence or two, with its parameters."""
    words = _sentence(measure)
    if measure.params.get("judged_only"):
        words += " Documents that nobody judged are taken out of the ranking first."
    return words


def _sentence(measure: Measure) -> str:
    cutoff = cutoff_of(measure)
    first = f"the first {cutoff:,}" if cutoff else "all ranks"
    level = measure.params.get("rel", 1)
    relevant = f"relevant (grade {level} or more)"
    match measure.NAME:
        case "nDCG":
            gains = measure.params.get("gains")
            gain = f"gain of its grade ({_mapping(gains)})" if gains else "grade"
            return (
                f"Each document's {gain} divided by log₂(rank + 1), summed over {first}; divided by the same sum of "
                "the best possible order of all judged documents. 0 without a relevant document."
            )
        case "RR":
            return f"One over the rank of the first {relevant} document; 0 where none is among {first}."
        case "AP":
            return f"Precision at the rank of each {relevant} document among {first}, summed, over all that are known."
        case "P":
            return f"{relevant.capitalize()} documents among {first}, over {cutoff}, also where fewer were returned."
        case "R":
            return f"The share of all {relevant} documents that is among {first}."
        case "Success":
            return f"1 if any of {first} is {relevant}, else 0."
        case "Rprec":
            return f"Precision at rank R, where R is how many {relevant} documents are known."
        case "Bpref":
            return (
                f"How seldom a judged document that is not {relevant} stands above one that is; unjudged documents "
                "are passed over."
            )
        case "RBP":
            p = measure.params["p"]
            return (
                f"What somebody gains per document looked at who goes on to the next rank with the chance p = {p:g}: "
                f"p^(rank - 1) of each {relevant} document among {first}, summed, times 1 - p. Not 1 even for the best "
                f"order of few relevant documents; about {1 / (1 - p):.3g} ranks are looked at."
            )
        case _:
            return f"The share of {first} that somebody judged; undefined for an empty list."


def _mapping(gains: dict[int, int]) -> str:
    return ", ".join(f"{grade} → {gain}" for grade, gain in sorted(gains.items()))


def substituted(measure: Measure, found: Sequence[tuple[int, int | None]], grades: Sequence[int], ranks: int) -> str:
    """The numbers of one query: ``found`` are (rank, grade or None) of its ranking, ``ranks`` how many it has,
    ``grades`` those of all its judged documents. Empty where the sentence has nothing to fill in."""
    if measure.params.get("judged_only"):
        judged = [grade for _, grade in found if grade is not None]
        found, ranks = list(enumerate(judged, start=1)), len(judged)
    cutoff = cutoff_of(measure) or max(ranks, 1)
    level = measure.params.get("rel", 1)
    hits = [rank for rank, grade in found if grade is not None and grade >= level and rank <= cutoff]
    known = sum(grade >= level for grade in grades)
    match measure.NAME:
        case "nDCG":
            gains = measure.params.get("gains", {})
            own = [(rank, gains.get(grade, grade)) for rank, grade in found if grade and rank <= cutoff]
            best = sorted((gains.get(grade, grade) for grade in grades if grade), reverse=True)[:cutoff]
            return f"{_discounted(own)} over {_discounted(list(enumerate(best, start=1)))}"
        case "RR":
            return f"1 / {hits[0]:,}" if hits else "none found: 0"
        case "AP":
            terms = [f"{place}/{rank}" for place, rank in enumerate(hits, start=1)]
            return f"({_shortened(terms)}) / {known:,}" if hits else "none found: 0"
        case "P":
            return f"{len(hits):,} / {cutoff:,}"
        case "R":
            return f"{len(hits):,} / {known:,}" if known else "none known: 0"
        case "Success":
            return f"the first at rank {hits[0]:,}" if hits else "none found"
        case "Rprec":
            return f"{sum(rank <= known for rank in hits):,} / {known:,}" if known else "none known: 0"
        case "Bpref":
            return f"{known:,} relevant and {len(grades) - known:,} judged not relevant"
        case "RBP":
            p = measure.params["p"]
            terms = [f"{p:g}^{rank - 1}" for rank in hits]
            return f"{1 - p:.4g} × ({_shortened(terms)})" if hits else "none found: 0"
        case _:
            top = min(cutoff, ranks)
            return (
                f"{sum(grade is not None and rank <= top for rank, grade in found):,} / {top:,}" if top else "no list"
            )


def _discounted(gains: Sequence[Gain]) -> str:
    """ "3/log₂2 + 1/log₂4 = 3.5" """
    if not gains:
        return "0"
    terms = [f"{gain}/log₂{rank + 1}" for rank, gain in gains]
    return f"({_shortened(terms)} = {sum(gain / math.log2(rank + 1) for rank, gain in gains):.4f})"


def _shortened(terms: Sequence[str]) -> str:
    return " + ".join([*terms[:TERMS_SHOWN], *(["…"] if len(terms) > TERMS_SHOWN else [])])
