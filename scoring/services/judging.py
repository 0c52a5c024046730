"""What a judge does: take pairs, grade them, put one off, take the last verdict back.

All of it locks the pool's row, so that no pair is handed to more people than the pool wants.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Document, Job, Judge, PairClaim, Pool, PoolPair, Query, Verdict, VerdictSource
from scoring.selectors.pools import judged_by, pairs_open
from scoring.states import PoolState

CLAIM: Final = timedelta(minutes=15)
MOST_CLAIMED: Final = 25


def pairs_claim(*, principal: Principal, pool: Pool, count: int = 1) -> list[PoolPair]:
    """Up to ``count`` pairs for the person who asks: first those that they hold, the latest first, then new ones in the
    pool's order, at last those that they put off. All are theirs for another 15 minutes.

    Raises AssayError 409 ``pool_closed``, 403 ``no_judge``.
    """
    user = judge_user(principal)
    with transaction.atomic():
        pool = _locked(pool)
        held = PairClaim.objects.filter(pair=OuterRef("pk"), user=user)
        theirs = PairClaim.objects.filter(
            ~Exists(Verdict.objects.filter(pair=OuterRef("pair"), judge__user=user, source=VerdictSource.BLIND)),
            pair__pool=pool, user=user, expires_at__gt=Now(),
        ).order_by("-expires_at", "pair__place")  # fmt: skip
        pairs = [claim.pair for claim in theirs.select_related("pair")[:count]]
        for rows in (
            pairs_open(pool, user).exclude(Exists(held.filter(later_at__isnull=False))),
            pairs_open(pool, user).filter(Exists(held.filter(later_at__isnull=False))),
        ):
            if len(pairs) < count:
                pairs += rows.exclude(pk__in=[pair.pk for pair in pairs])[: count - len(pairs)]
        for pair in pairs:
            _hold(pair, user)
    return pairs


def verdict_give(*, principal: Principal, pair: PoolPair, grade: int | None) -> Verdict:
    """Grade a pair, or change one's grade of it; None: it cannot be judged. What was seen ranked counts as not judged.

    Raises AssayError 422 ``bad_grade``; 409 ``pool_closed``, ``pair_taken`` when others have judged it meanwhile.
    """
    user = judge_user(principal)
    with transaction.atomic():
        pool = _locked(pair.pool)
        grade_check(pool, grade)
        judged = PoolPair.objects.filter(judged_by(user), pk=pair.pk).exists()
        if not judged and not pairs_open(pool, user).filter(pk=pair.pk).exists():
            message = (
                f"This pair has its {pool.quorum} judge{'s' if pool.quorum > 1 else ''} by now: it was yours for "
                f"{CLAIM.seconds // 60} minutes, and was then handed to others. Go on with the next one."
            )
            raise AssayError("pair_taken", message, status=409)
        PairClaim.objects.filter(pair=pair, user=user).delete()
        return verdict_write(pair=pair, judge=judge_of(pool, user), grade=grade, source=VerdictSource.BLIND)


def verdict_undo(*, principal: Principal, pool: Pool) -> PoolPair:
    """Take back the latest verdict of the person who asks, and hand them its pair again.

    Raises AssayError 409 ``nothing_to_undo``, ``pool_closed``.
    """
    user = judge_user(principal)
    with transaction.atomic():
        pool = _locked(pool)
        own = Verdict.objects.filter(pair__pool=pool, judge__user=user, source=VerdictSource.BLIND)
        last = own.select_related("pair").order_by("-decided_at", "-pk").first()
        if last is None:
            message = f"You have no verdict in '{pool.name}' that could be taken back."
            raise AssayError("nothing_to_undo", message, status=409)
        last.delete()
        _hold(last.pair, user)
        return last.pair


def pair_put_off(*, principal: Principal, pair: PoolPair) -> None:
    """Give the pair back for now; it comes again when nothing else is left. Raises AssayError 409 ``pool_closed``."""
    user = judge_user(principal)
    with transaction.atomic():
        _locked(pair.pool)
        PairClaim.objects.update_or_create(pair=pair, user=user, defaults={"expires_at": Now(), "later_at": Now()})


def verdict_seen(*, principal: Principal, job: Job, query: Query, document: Document, relevant: bool) -> Verdict:
    """The shortcut on a page of results: the best or the worst grade, by somebody who saw score and rank. It goes to
    the newest open pool that has the pair, else to a pool of such verdicts alone, and never replaces a blind one.

    Raises AssayError 409 ``judged_blind``.
    """
    user = judge_user(principal)
    with transaction.atomic():
        pair = _pair_seen(principal, job, query.external_id, document.external_id)
        pool = _locked(pair.pool)
        if PoolPair.objects.filter(judged_by(user), pk=pair.pk).exists():
            message = f"You judged this document in '{pool.name}' without seeing its rank; that verdict stands."
            raise AssayError("judged_blind", message, status=409)
        grade = len(pool.scale) - 1 if relevant else 0
        return verdict_write(pair=pair, judge=judge_of(pool, user), grade=grade, source=VerdictSource.SEEN)


def _pair_seen(principal: Principal, job: Job, query_id: str, document_id: str) -> PoolPair:
    pools = Pool.objects.for_team(principal.team).filter(
        query_set=job.query_set_id, document_set=job.document_set_id, state=PoolState.OPEN
    )
    pairs = PoolPair.objects.filter(pool__in=pools, query_id=query_id, document_id=document_id)
    if known := pairs.select_related("pool").order_by("-pool__created_at").first():
        return known
    pool = pools.filter(sources=[]).first() or Pool.objects.create(
        team=principal.team,
        created_by=principal.user,
        name=f"Seen in results for {job.query_set.name}"[:200],
        query_set=job.query_set,
        document_set=job.document_set,
    )
    _locked(pool)
    place = PoolPair.objects.filter(pool=pool).count()
    return PoolPair.objects.create(pool=pool, place=place, query_id=query_id, document_id=document_id)


def verdict_write(*, pair: PoolPair, judge: Judge, grade: int | None, source: VerdictSource) -> Verdict:
    """One verdict per judge and pair; adjudications stand beside them."""
    own: dict[str, Any] = {"pair": pair, "judge": judge}
    beside = Verdict.objects.exclude(source=VerdictSource.ADJUDICATED)
    return beside.update_or_create(**own, defaults={"grade": grade, "source": source})[0]


def judge_of(pool: Pool, user: User) -> Judge:
    return Judge.objects.get_or_create(pool=pool, user=user, defaults={"name": user.get_username()})[0]


def judge_user(principal: Principal) -> User:
    """Raises AssayError 403 ``no_judge`` for a token that belongs to nobody."""
    if principal.user is None:
        message = f"The {principal.label} belongs to no person, and a verdict is somebody's; use a person's token."
        raise AssayError("no_judge", message, status=403)
    return principal.user


def grade_check(pool: Pool, grade: int | None) -> None:
    if grade is not None and grade not in range(len(pool.scale)):
        message = f"The grade is {grade}; give 0 to {len(pool.scale) - 1}, or null where it cannot be judged."
        raise AssayError("bad_grade", message, status=422, param="grade")


def _locked(pool: Pool) -> Pool:
    locked = Pool.objects.select_for_update().get(pk=pool.pk)
    if locked.state == PoolState.CLOSED:
        raise AssayError("pool_closed", f"Pool '{pool.name}' is closed; open it again to judge its pairs.", status=409)
    return locked


def _hold(pair: PoolPair, user: User) -> None:
    until = {"expires_at": Now() + CLAIM, "later_at": None}
    PairClaim.objects.update_or_create(pair=pair, user=user, defaults=until)
