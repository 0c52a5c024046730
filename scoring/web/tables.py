"""The columns of every list."""

from __future__ import annotations

from typing import Any, Final

import django_tables2 as tables
from django.contrib.humanize.templatetags.humanize import intcomma
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scoring.models import Comparison, Evaluation, Job, Pool, ScoreRequest
from scoring.models.base import UploadedSet
from scoring.templatetags import pages
from scoring.web.set_kinds import kind_of

FIGURES_SHOWN: Final = 3
NUMBER = {"th": {"class": "num"}, "td": {"class": "num"}}


def main_link(url: str, text: str) -> SafeString:
    return format_html('<a class="main-link break" href="{}">{}</a>', url, text)


class MomentColumn(tables.Column):
    def render(self, value: Any) -> Any:
        return pages.ago(value)


class CountColumn(tables.Column):
    attrs = NUMBER

    def render(self, value: int) -> str:
        return intcomma(value)


class StateColumn(tables.Column):
    def render(self, record: Any) -> SafeString:
        return pages.state(record)


class SetTable(tables.Table):
    """Every kind of set; where no job refers to such sets, without the column of jobs."""

    name = tables.Column()
    kept = CountColumn("Rows", accessor="counts__kept", order_by="counts__kept")
    bad = CountColumn("Left out", accessor="counts__bad", order_by="counts__bad")
    job_count = CountColumn("Jobs", accessor="job_count", default="0")
    file_name = tables.Column("File", attrs={"td": {"class": "muted break"}})
    created_by = tables.Column("By", attrs={"td": {"class": "muted"}})
    created_at = MomentColumn("Uploaded", attrs={"td": {"class": "nowrap muted"}})

    class Meta:
        order_by = "-created_at"
        empty_text = "No set matches this filter."

    def render_name(self, record: UploadedSet) -> SafeString:
        return main_link(reverse("web:set_detail", args=[kind_of(record), record.pk]), record.name)


class JobTable(tables.Table):
    name = tables.Column()
    state = StateColumn()
    scored_by = tables.Column("Scored by", orderable=False, attrs={"td": {"class": "break"}})
    pairs = CountColumn("Pairs", accessor="pair_count")
    query_set = tables.Column("Queries", attrs={"td": {"class": "muted break"}}, accessor="query_set__name")
    document_set = tables.Column("Documents", attrs={"td": {"class": "muted break"}}, accessor="document_set__name")
    queued_at = MomentColumn("Submitted", attrs={"td": {"class": "nowrap muted"}})

    class Meta:
        order_by = "-queued_at"
        empty_text = "No job matches this filter."

    def render_name(self, record: Job) -> SafeString:
        return main_link(reverse("web:job_detail", args=[record.pk]), record.name)


class ComparisonTable(tables.Table):
    name = tables.Column()
    stages = tables.Column("Compares", accessor="compared__all", orderable=False, attrs={"td": {"class": "break"}})
    judgement_set = tables.Column("Judgements", default="—", attrs={"td": {"class": "muted break"}})
    pinned = tables.Column()
    created_by = tables.Column("By", attrs={"td": {"class": "muted"}})
    created_at = MomentColumn("Made", attrs={"td": {"class": "nowrap muted"}})

    class Meta:
        order_by = ("-pinned", "-created_at")
        empty_text = "No comparison matches this filter."

    def render_name(self, record: Comparison) -> SafeString:
        return main_link(reverse("web:comparison_detail", args=[record.pk]), record.name)

    def render_stages(self, value: Any) -> str:
        return ", ".join(f"{column.stage} ({column.stage.job.name})" for column in value)

    def render_pinned(self, value: bool) -> str:
        return pages.chip("pinned", "ok") if value else "—"


class PoolTable(tables.Table):
    name = tables.Column()
    state = StateColumn()
    pair_count = CountColumn("Pairs")
    quorum = tables.Column("Judges per pair", attrs=NUMBER)
    query_set = tables.Column("Queries", attrs={"td": {"class": "muted break"}}, accessor="query_set__name")
    base = tables.Column("Judgements", default="—", attrs={"td": {"class": "muted break"}})
    created_by = tables.Column("By", attrs={"td": {"class": "muted"}})
    created_at = MomentColumn("Made", attrs={"td": {"class": "nowrap muted"}})

    class Meta:
        order_by = "-created_at"
        empty_text = "No pool matches this filter."

    def render_name(self, record: Pool) -> SafeString:
        return main_link(reverse("web:pool_detail", args=[record.pk]), record.name)


class EvaluationTable(tables.Table):
    stage = tables.Column("Ranking", orderable=False)
    job = tables.Column(accessor="stage__job__name", attrs={"td": {"class": "break"}})
    figures = tables.Column("First measures", orderable=False, attrs={"td": {"class": "break"}})
    evaluated = tables.Column("Queries", attrs=NUMBER)
    judgement_set = tables.Column("Judgements", default="deleted", attrs={"td": {"class": "muted break"}})
    query_set = tables.Column(
        "Query set", accessor="stage__job__query_set__name", attrs={"td": {"class": "muted break"}}
    )
    incomplete = tables.Column("State")
    created_by = tables.Column("By", attrs={"td": {"class": "muted"}})
    created_at = MomentColumn("Made", attrs={"td": {"class": "nowrap muted"}})

    class Meta:
        order_by = "-created_at"
        empty_text = "No evaluation matches this filter."

    def render_stage(self, record: Evaluation) -> SafeString:
        return main_link(reverse("web:evaluation_detail", args=[record.pk]), str(record.stage))

    def render_figures(self, value: list[dict[str, Any]]) -> str:
        shown = value[:FIGURES_SHOWN]
        words = (f"{one['measure']} {'none' if one['mean'] is None else format(one['mean'], '.4f')}" for one in shown)
        return ", ".join(words) + (", …" if len(value) > FIGURES_SHOWN else "")

    def render_evaluated(self, record: Evaluation) -> str:
        return f"{record.evaluated:,} of {record.query_count:,}"

    def render_judgement_set(self, record: Evaluation) -> str:
        return f"{record.judgement_set.name}, version {record.pinned['judgement_set']['version']}"

    def render_incomplete(self, value: bool) -> SafeString:
        return pages.chip("incomplete", "warn") if value else pages.chip("evaluated", "ok")


class ScoreRequestTable(tables.Table):
    created_at = MomentColumn("When", attrs={"td": {"class": "nowrap"}})
    endpoint = tables.Column(attrs={"td": {"class": "mono"}})
    model = tables.Column("Model", accessor="model_name")
    outcome = tables.Column("Outcome", accessor="status_code")
    documents = CountColumn("Documents", accessor="document_count")
    total = tables.Column("Time", accessor="timings__total", attrs=NUMBER, orderable=False, default="—")
    caller = tables.Column("By", accessor="token", orderable=False, empty_values=(), attrs={"td": {"class": "muted"}})

    class Meta:
        order_by = "-created_at"
        empty_text = "No request matches this filter."

    def render_created_at(self, record: ScoreRequest) -> SafeString:
        url = reverse("web:score_request_detail", args=[record.pk])
        return format_html('<a class="main-link" href="{}">{}</a>', url, pages.ago(record.created_at))

    def render_outcome(self, record: ScoreRequest) -> SafeString:
        good = record.status_code < 400
        return pages.chip(f"{record.status_code} {record.error_code or 'ok'}", "ok" if good else "bad")

    def render_total(self, value: float) -> str:
        return pages.milliseconds(value)

    def render_caller(self, record: ScoreRequest) -> str:
        return f"token {record.token.name}" if record.token else str(record.created_by or "system")


# By the name under which people's choices of columns are kept.
TABLES: Final[dict[str, type[tables.Table]]] = {
    "sets": SetTable,
    "jobs": JobTable,
    "comparisons": ComparisonTable,
    "pools": PoolTable,
    "evaluations": EvaluationTable,
    "score-requests": ScoreRequestTable,
}
