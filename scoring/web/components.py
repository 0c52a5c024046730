"""Every component of the pages on one page, for whoever builds with them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from django.contrib.auth.mixins import UserPassesTestMixin
from django.views.generic import TemplateView

from assay.web.mixins import PrincipalMixin
from scoring.web.figures import Chart, histogram
from scoring.web.paging import LongPaginator

SAMPLE = [("1–32", 4), ("33–64", 19), ("65–128", 41), ("129–256", 17), ("257–512", 3), ("over 512", 1)]


class SamplePaginator(LongPaginator):
    count = 1204
    exact = True


class ComponentsView(PrincipalMixin, UserPassesTestMixin, TemplateView):
    template_name = "components.html"
    required_scope: ClassVar[str | None] = None

    def test_func(self) -> bool:
        return bool(getattr(self.request.user, "is_staff", False))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        seconds = range(120)
        waves = {"documents per second": [round(40 + 20 * math.sin(second / 9), 1) for second in seconds]}
        return super().get_context_data(
            histogram=histogram(SAMPLE, caption="tokens", unit="documents"),
            chart=Chart("bar", [label for label, _ in SAMPLE], {"documents": [count for _, count in SAMPLE]}),
            live=Chart("live", [1_790_000_000 + second for second in seconds], waves, "documents / s"),
            counters=[
                {"label": "Rows read", "value": 1204},
                {"label": "Good", "value": 1167},
                {"label": "Cannot be kept", "value": 37, "note": "of these 12 repeated"},
            ],
            tabs=[
                {"title": "Results", "url": "#", "current": True, "count": 225},
                {"title": "Evaluation", "url": "#", "current": False, "count": None},
            ],
            steps=[
                {"title": "File", "state": "done"},
                {"title": "Columns", "state": "now"},
                {"title": "Check and import", "state": "later"},
            ],
            exports=[
                {"url": "#", "format": "CSV", "detail": "all 1,204 rows, safe for spreadsheets"},
                {"url": "#", "format": "Parquet", "detail": "all 1,204 rows, with types"},
            ],
            page=SamplePaginator(range(1204), 50).page(1),
            tones=[
                ("Completed", "ok"),
                ("Running", "live"),
                ("Queued", "wait"),
                ("With errors", "warn"),
                ("Failed", "bad"),
                ("Cancelled", ""),
            ],
            **kwargs,
        )
