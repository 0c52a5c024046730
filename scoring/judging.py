"""How the verdicts of several judges on one pair become one grade."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from scoring.models.pool import JudgingRule


def grade_combined(rule: JudgingRule, grades: Sequence[int]) -> int | None:
    """``grades`` in the order in which they were given; None where the rule gives none. An adjudication, if there is
    one, stands in place of all this.

    Of two that are equally good the lower one is taken: a document is not called relevant by chance.
    """
    if not grades or rule == JudgingRule.ADJUDICATED:
        return None
    if rule == JudgingRule.SINGLE:
        return grades[0]
    if rule == JudgingRule.MAJORITY:
        counts = Counter(grades)
        return min(counts, key=lambda grade: (-counts[grade], grade))
    if rule == JudgingRule.MEDIAN:
        return sorted(grades)[(len(grades) - 1) // 2]
    return math.ceil(sum(grades) / len(grades) - 0.5)
