"""The columns of the lists that administrators read."""

from __future__ import annotations

import django_tables2 as tables
from django.urls import reverse
from django.utils.safestring import SafeString

from accounts.models import ApiToken
from audit.models import AuditEvent
from scoring.models import Webhook, WebhookDelivery
from scoring.templatetags import pages
from scoring.web.tables import CountColumn, MomentColumn, StateColumn, main_link

MUTED = {"td": {"class": "muted"}}
WRAPPED = {"td": {"class": "break"}}
TOKEN_TONES = {"in use": "ok", "expired": "warn", "revoked": ""}


class TokenTable(tables.Table):
    name = tables.Column()
    prefix = tables.Column("Begins with", orderable=False, attrs={"td": {"class": "mono small"}})
    scopes = tables.Column("May", orderable=False, attrs=WRAPPED)
    standing = tables.Column("State", orderable=False)
    expires_at = MomentColumn("Expires", default="never")
    last_used_at = MomentColumn("Last used", default="never", attrs=MUTED)
    created_by = tables.Column("By", attrs=MUTED, default="—")

    class Meta:
        order_by = "-created_at"
        empty_text = "No token matches this filter."

    def render_name(self, record: ApiToken) -> SafeString:
        return main_link(reverse("web:token_detail", args=[record.public_id]), record.name)

    def render_scopes(self, value: list[str]) -> str:
        return ", ".join(value)

    def render_standing(self, value: str) -> SafeString:
        return pages.chip(value, TOKEN_TONES[value])

    def render_expires_at(self, record: ApiToken) -> str:
        assert record.expires_at is not None
        return f"{record.expires_at:%Y-%m-%d %H:%M} UTC"


class AuditTable(tables.Table):
    at = tables.Column("When", attrs={"td": {"class": "nowrap"}})
    actor_label = tables.Column("Who", attrs=WRAPPED)
    sentence = tables.Column("What", orderable=False, attrs=WRAPPED)
    detail = tables.Column("In detail", orderable=False, attrs={"td": {"class": "muted small break"}})
    request_id = tables.Column("Request", orderable=False, attrs={"td": {"class": "mono small muted break"}})

    class Meta:
        order_by = "-at"
        empty_text = "Nothing on record matches this filter."

    def render_at(self, record: AuditEvent) -> SafeString:
        return pages.clock(record.at)

    def render_detail(self, value: dict[str, object]) -> str:
        return "; ".join(f"{name.replace('_', ' ')}: {_told(given)}" for name, given in value.items())


class WebhookTable(tables.Table):
    url = tables.Column("Address", attrs=WRAPPED)
    description = tables.Column("For", default="—", attrs=WRAPPED)
    events = tables.Column("Told of", orderable=False, attrs=WRAPPED)
    enabled = tables.Column("State")
    succeeded_at = MomentColumn("Last arrived", default="never", attrs=MUTED)
    waiting = CountColumn("Waiting", orderable=False)

    class Meta:
        order_by = "created_at"
        empty_text = "No webhook."

    def render_url(self, record: Webhook) -> SafeString:
        return main_link(reverse("web:webhook_detail", args=[record.pk]), record.url)

    def render_events(self, value: list[str]) -> str:
        return ", ".join(event.removeprefix("job.").replace("_", " ") for event in value)

    def render_enabled(self, value: bool) -> SafeString:
        return pages.chip("enabled", "ok") if value else pages.chip("disabled", "bad")


class DeliveryTable(tables.Table):
    created_at = MomentColumn("When", attrs={"td": {"class": "nowrap"}})
    event = tables.Column(attrs={"td": {"class": "mono small"}})
    state = StateColumn()
    attempts = CountColumn("Attempts")
    status_code = tables.Column("Answer", default="—")
    error = tables.Column("Why not", orderable=False, default="", attrs={"td": {"class": "muted break"}})
    replay = tables.TemplateColumn(
        verbose_name="Send again",
        orderable=False,
        template_name="webhooks/_replay.html",
        attrs={"td": {"class": "right"}},
    )

    class Meta:
        model = WebhookDelivery
        fields = ("created_at", "event", "state", "attempts", "status_code", "error")
        order_by = "-created_at"
        empty_text = "Nothing was sent yet."


def _told(value: object) -> str:
    match value:
        case [old, new]:
            return f"{_told(old)} → {_told(new)}"
        case list():
            return ", ".join(map(str, value))
        case None | "":
            return "none"
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)[:120]
