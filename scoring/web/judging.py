"""Judging: one pair after the other, or twenty-five on a page; and the shortcut on a page of results."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import Pool, PoolPair
from scoring.selectors.pools import PairShown, judging_progress, pairs_shown
from scoring.services.judging import (
    MOST_CLAIMED,
    pair_put_off,
    pairs_claim,
    verdict_give,
    verdict_seen,
    verdict_undo,
)
from scoring.web.htmx import wants_fragment
from scoring.web.job_actions import JobActionView
from scoring.web.pools import pool_or_404
from scoring.web.result_actions import PairForm, pair_shown

CANNOT: Final = "cannot"
SHORTEST_TERM: Final = 3  # characters


class JudgeView(PrincipalMixin):
    """GET hands out a pair, or shows the one that is held. POST does what the button says, and shows the next one."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        return self._shown(pool_or_404(self))

    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        """``do``: a grade, ``cannot``, ``later`` or ``undo``; ``pair``: which one is meant."""
        pool, said, refusal = pool_or_404(self), "", ""
        try:
            said = self._do(pool, request.POST.get("do", ""))
        except AssayError as error:
            refusal = error.message
        if wants_fragment(request):
            return self._shown(pool, said=said, refusal=refusal)
        (messages.error if refusal else messages.success)(request, refusal or said)
        return redirect(f"{request.path}?{request.GET.urlencode()}")

    def _do(self, pool: Pool, do: str) -> str:
        if do == "undo":
            pair = verdict_undo(principal=self.principal, pool=pool)
            return f"Taken back: {pair.document_id} waits for your grade again."
        pair = pair_or_404(pool, self.request.POST.get("pair", ""))
        if do == "later":
            pair_put_off(principal=self.principal, pair=pair)
            return f"Put off: {pair.document_id} comes again at the end."
        grade = grade_of(do)
        verdict_give(principal=self.principal, pair=pair, grade=grade)
        return f"Saved: {pair.document_id} – {'cannot be judged' if grade is None else pool.scale[grade]}."

    def _shown(self, pool: Pool, *, said: str = "", refusal: str = "") -> HttpResponse:
        user = self.principal.user
        shown: PairShown | None = None
        try:
            pairs = pairs_claim(principal=self.principal, pool=pool)
            shown = next(iter(pairs_shown(pool, pairs, user)), None)
        except AssayError as error:
            refusal = refusal or error.message
        context = {
            "pool": pool,
            "shown": shown,
            "text": terms_marked(shown) if shown and "terms" in self.request.GET else None,
            "progress": judging_progress(pool, user),
            "scale": list(enumerate(pool.scale)),
            "said": said,
            "refusal": refusal,
            "view": self,
        }
        template = "judging/_judge.html" if wants_fragment(self.request) else "judging/judge.html"
        return render(self.request, template, context)


class BulkView(PrincipalMixin):
    """Up to twenty-five pairs, each with its grades in a row. With scripts each is saved when it is chosen."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        pool, refusal, rows = pool_or_404(self), "", list[PairShown]()
        try:
            pairs = pairs_claim(principal=self.principal, pool=pool, count=MOST_CLAIMED)
            rows = pairs_shown(pool, sorted(pairs, key=lambda pair: pair.place), self.principal.user)
        except AssayError as error:
            refusal = error.message
        context = {
            "pool": pool,
            "rows": rows,
            "progress": judging_progress(pool, self.principal.user),
            "scale": list(enumerate(pool.scale)),
            "refusal": refusal,
            "view": self,
        }
        return render(request, "judging/bulk.html", context)

    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        pool, saved, refusals = pool_or_404(self), 0, list[str]()
        for field in request.POST:
            value = request.POST.get(field, "")
            if not field.startswith("grade-") or value == "":
                continue
            pair = pair_or_404(pool, field.removeprefix("grade-"))
            try:
                verdict_give(principal=self.principal, pair=pair, grade=grade_of(value))
                saved += 1
            except AssayError as refusal:
                refusals.append(f"{pair.document_id}: {refusal.message}")
        if wants_fragment(request):
            return render(request, "judging/_saved.html", {"refusals": refusals, "saved": saved})
        for refused in refusals:
            messages.error(request, refused)
        messages.success(request, f"{saved} grades are saved.")
        return redirect("web:pool_bulk", pk=pool.pk)


class ResultJudgeView(JobActionView):
    """The shortcut on a page of results: best or worst grade, noted as seen ranked."""

    def act(self) -> str:
        form, job = PairForm(self.request.POST), self.job()
        if not form.is_valid() or self.request.POST.get("relevant") not in ("yes", "no"):
            raise Http404
        query, document = pair_shown(job, form.cleaned_data["query"], form.cleaned_data["document"])
        relevant = self.request.POST["relevant"] == "yes"
        verdict = verdict_seen(principal=self.principal, job=job, query=query, document=document, relevant=relevant)
        pool = verdict.pair.pool
        return f"{document.external_id}: “{pool.scale[verdict.grade or 0]}” is kept in the pool “{pool.name}”."

    def after(self) -> str:
        document = self.request.POST.get("document", "")
        return f"{reverse('web:job_detail', args=[self.kwargs['pk']])}?{self.request.GET.urlencode()}#d{document}"


def pair_or_404(pool: Pool, given: str) -> PoolPair:
    known = given.isascii() and given.isdecimal() and len(given) < 19
    pair = PoolPair.objects.select_related("pool").filter(pool=pool, pk=given).first() if known else None
    if pair is None:
        raise Http404
    return pair


def grade_of(given: str) -> int | None:
    """None for what cannot be judged. Raises Http404 for what no button sends."""
    if given == CANNOT:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) == 1):
        raise Http404
    return int(given)


def terms_marked(shown: PairShown) -> SafeString:
    """The document's text with the words of the query marked; everything else in it is escaped."""
    words = {word for word in re.findall(r"\w+", shown.query.text.lower()) if len(word) >= SHORTEST_TERM}
    if not words:
        return conditional_escape(shown.document.text)
    found = re.split(rf"\b({'|'.join(map(re.escape, sorted(words)))})\b", shown.document.text, flags=re.IGNORECASE)
    parts = [
        f"<mark>{conditional_escape(part)}</mark>" if place % 2 else conditional_escape(part)
        for place, part in enumerate(found)
    ]
    return mark_safe("".join(parts))
