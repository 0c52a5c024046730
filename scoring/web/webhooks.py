"""Webhooks of the team: who is told when jobs end, and what became of each message."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.generic import TemplateView
from django_tables2 import SingleTableView

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.filters import WebhookDeliveryFilter
from scoring.models import Webhook, WebhookDelivery, WebhookEvent
from scoring.services.webhook_deliveries import delivery_replay, webhook_test
from scoring.services.webhooks import webhook_change, webhook_change_secret, webhook_create, webhook_delete
from scoring.states import DeliveryState
from scoring.web.actions import ActionView
from scoring.web.admin_tables import DeliveryTable, WebhookTable
from scoring.web.filtered import FilteredListView, PagedTableMixin
from scoring.web.secrets_shown import shown_once

DEEDS: Final = ("enable", "disable", "test", "delete")
EVENT_CHOICES: Final = [(event.value, event.value.removeprefix("job.").replace("_", " ")) for event in WebhookEvent]


class WebhookForm(forms.Form):
    url = forms.CharField(label="Address", max_length=2000, help_text="https, and a host that the platform may reach.")
    description = forms.CharField(label="What it is for", max_length=200, required=False)
    events = forms.MultipleChoiceField(
        label="Tell it when a job is", choices=EVENT_CHOICES, widget=forms.CheckboxSelectMultiple,
        initial=list(WebhookEvent.values),
    )  # fmt: skip

    @property
    def plain(self) -> list[forms.BoundField]:
        return [self["url"], self["description"]]

    @property
    def boxes(self) -> list[forms.BoundField]:
        return [self["events"]]


def webhook_or_404(view: PrincipalMixin) -> Webhook:
    webhook = Webhook.objects.for_team(view.principal.team).filter(pk=view.kwargs["pk"]).first()
    if webhook is None:
        raise not_here("webhook", view.kwargs["pk"])
    return webhook


class WebhookListView(PrincipalMixin, PagedTableMixin, SingleTableView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_class = WebhookTable
    template_name = "webhooks/list.html"

    def get_queryset(self) -> Any:
        waiting = Count("deliveries", filter=Q(deliveries__state=DeliveryState.PENDING))
        return Webhook.objects.for_team(self.principal.team).annotate(waiting=waiting)


class WebhookNewView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "webhooks/new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        kwargs.setdefault("form", WebhookForm())
        return super().get_context_data(**kwargs)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = WebhookForm(request.POST)
        if form.is_valid():
            try:
                webhook, secret = webhook_create(principal=self.principal, **form.cleaned_data)
            except AssayError as refusal:
                form.add_error(refusal.param if refusal.param in form.fields else None, refusal.message)
            else:
                return _with_secret(self, webhook, secret)
        return self.render_to_response(self.get_context_data(form=form), status=422)


class WebhookDetailView(FilteredListView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_class = DeliveryTable
    filterset_class = WebhookDeliveryFilter
    template_name = "webhooks/detail.html"

    def get_queryset(self) -> Any:
        self.webhook = webhook_or_404(self)
        return WebhookDelivery.objects.filter(webhook=self.webhook).defer("payload")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        hook = self.webhook
        form = kwargs.pop("form", None) or WebhookForm(
            initial={"url": hook.url, "description": hook.description, "events": hook.events}
        )
        return super().get_context_data(webhook=hook, form=form, **kwargs)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        webhook, form = webhook_or_404(self), WebhookForm(request.POST)
        if form.is_valid():
            try:
                webhook_change(principal=self.principal, webhook=webhook, **form.cleaned_data)
                messages.success(request, "Saved.")
            except AssayError as refusal:
                messages.error(request, refusal.message)
        else:
            messages.error(request, " ".join(str(error) for errors in form.errors.values() for error in errors))
        return redirect("web:webhook_detail", pk=webhook.pk)


class WebhookActionView(ActionView):
    """Enable, disable, delete, or send a test message."""

    required_scope: ClassVar[str] = Scope.JOBS
    deed: str = ""

    def act(self) -> str:
        webhook = webhook_or_404(self)
        if self.deed == "delete":
            webhook_delete(principal=self.principal, webhook=webhook)
            return "The webhook is deleted, with its deliveries."
        if self.deed == "test":
            webhook_test(webhook=webhook)
            return "A test message is on its way; below you see what becomes of it."
        webhook_change(principal=self.principal, webhook=webhook, enabled=self.deed == "enable")
        return f"The webhook is {self.deed}d."

    def after(self) -> str:
        if self.deed == "delete":
            return reverse("web:webhook_list")
        return reverse("web:webhook_detail", args=[self.kwargs["pk"]])


class WebhookSecretView(PrincipalMixin):
    required_scope: ClassVar[str] = Scope.JOBS

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        webhook = webhook_or_404(self)
        return _with_secret(self, webhook, webhook_change_secret(principal=self.principal, webhook=webhook))


class DeliveryReplayView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        webhook = webhook_or_404(self)
        delivery = WebhookDelivery.objects.filter(webhook=webhook, pk=self.kwargs["delivery"]).first()
        if delivery is None:
            raise Http404
        delivery_replay(principal=self.principal, delivery=delivery)
        return "The message is sent again, under the same id."

    def after(self) -> str:
        return reverse("web:webhook_detail", args=[self.kwargs["pk"]])


def _with_secret(view: PrincipalMixin, webhook: Webhook, secret: str) -> HttpResponse:
    """The secret is in this answer alone."""
    context = {"view": view, "webhook": webhook, "secret": secret}
    return shown_once(view.request, "webhooks/secret.html", context)
