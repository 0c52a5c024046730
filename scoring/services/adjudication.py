"""Who decides where judges disagree. The decision stands beside their verdicts, and above them."""

from __future__ import annotations

from django.db import transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import Pool, PoolPair, Verdict, VerdictSource
from scoring.services.judging import grade_check, judge_of, judge_user


def pair_adjudicate(*, principal: Principal, pair: PoolPair, grade: int) -> Verdict:
    """Decide, or decide otherwise. Raises AssayError 403 ``no_judge``, 422 ``bad_grade``."""
    user = judge_user(principal)
    grade_check(pair.pool, grade)
    with transaction.atomic():
        Pool.objects.select_for_update().get(pk=pair.pool_id)
        decided, _ = Verdict.objects.update_or_create(
            pair=pair,
            source=VerdictSource.ADJUDICATED,
            defaults={"judge": judge_of(pair.pool, user), "grade": grade},
        )
        detail = {"pair": pair.pk, "grade": grade}
        audit_record(verb="pool.adjudicated", principal=principal, target=pair.pool, detail=detail)
    return decided


def adjudication_withdraw(*, principal: Principal, pair: PoolPair) -> None:
    """What the judges said counts again. Raises AssayError 404 ``not_adjudicated``."""
    with transaction.atomic():
        removed, _ = Verdict.objects.filter(pair=pair, source=VerdictSource.ADJUDICATED).delete()
        if not removed:
            message = f"Nobody has decided about the pair {pair.query_id} {pair.document_id}."
            raise AssayError("not_adjudicated", message, status=404, param="pair")
        audit_record(
            verb="pool.adjudication_withdrawn", principal=principal, target=pair.pool, detail={"pair": pair.pk}
        )
