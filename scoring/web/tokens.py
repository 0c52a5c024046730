"""API tokens of the team: made, shown once, limited, revoked."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.generic import TemplateView

from accounts.limits import Quota
from accounts.models import ApiToken
from accounts.scopes import Scope
from accounts.services import token_change, token_create, token_revoke
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.filters import TokenFilter
from scoring.models import ScoringModel
from scoring.selectors.tokens import tokens_of
from scoring.web.actions import ActionView
from scoring.web.admin_tables import TokenTable
from scoring.web.filtered import FilteredListView
from scoring.web.secrets_shown import shown_once

CHECKED: tuple[str, ...] = ("scopes", "allowed_models")  # shown as boxes to tick


class TokenForm(forms.ModelForm[ApiToken]):
    """What a token may do. The rules are the services', said beside the field they are about."""

    scopes = forms.MultipleChoiceField(label="It may", widget=forms.CheckboxSelectMultiple)
    allowed_models = forms.MultipleChoiceField(
        label="Only these models", required=False, widget=forms.CheckboxSelectMultiple, help_text="None ticked: all."
    )
    expires_at = forms.DateTimeField(
        label="Expires at", required=False, help_text="In UTC; empty: never.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )  # fmt: skip

    class Meta:
        model = ApiToken
        fields = ("name", "scopes", "allowed_models", "allowed_networks", "expires_at", *Quota.values)
        labels: ClassVar = {"allowed_networks": "Only from these networks", "name": "What it is for"}

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted({*ScoringModel.objects.values_list("name", flat=True), *(self.instance.allowed_models or [])})
        given: Any = self.fields
        given["scopes"].choices = [(scope.value, scope.label) for scope in Scope if principal.may(scope)]
        given["allowed_models"].choices = [(name, name) for name in names]

    def _post_clean(self) -> None:
        """The row stays as it is: the services write it."""

    def refused(self, refusal: AssayError) -> None:
        self.add_error(refusal.param if refusal.param in self.fields else None, refusal.message)

    @property
    def plain(self) -> list[forms.BoundField]:
        return [field for field in self if field.name not in CHECKED]

    @property
    def boxes(self) -> list[forms.BoundField]:
        return [self[name] for name in CHECKED]


def token_or_404(view: PrincipalMixin) -> ApiToken:
    token = tokens_of(view.principal.team).filter(public_id=view.kwargs["public_id"]).first()
    if token is None:
        raise not_here("API token", view.kwargs["public_id"])
    return token


class TokenListView(FilteredListView):
    required_scope: ClassVar[str] = Scope.ADMIN
    table_class = TokenTable
    filterset_class = TokenFilter
    template_name = "tokens/list.html"

    def get_queryset(self) -> Any:
        return tokens_of(self.principal.team)


class TokenNewView(PrincipalMixin, TemplateView):
    """The secret is in the answer to the POST alone: no other page, and nothing of ours, holds it afterwards."""

    required_scope: ClassVar[str] = Scope.ADMIN
    template_name = "tokens/new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        kwargs.setdefault("form", TokenForm(principal=self.principal, initial={"scopes": [Scope.SCORE]}))
        return super().get_context_data(**kwargs)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = TokenForm(request.POST, principal=self.principal)
        if form.is_valid():
            try:
                token, secret = token_create(team=self.principal.team, principal=self.principal, **form.cleaned_data)
            except AssayError as refusal:
                form.refused(refusal)
            else:
                base = request.build_absolute_uri("/").rstrip("/")
                context = {"view": self, "token": token, "secret": secret, "base_url": base}
                return shown_once(request, "tokens/created.html", context)
        return self.render_to_response(self.get_context_data(form=form), status=422)


class TokenDetailView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.ADMIN
    template_name = "tokens/detail.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        token = token_or_404(self)
        kwargs.setdefault("form", TokenForm(instance=token, principal=self.principal))
        return super().get_context_data(token=token, **kwargs)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        token = token_or_404(self)
        form = TokenForm(request.POST, instance=token, principal=self.principal)
        if form.is_valid():
            try:
                token_change(token=token, principal=self.principal, **form.cleaned_data)
                return self.render_to_response(self.get_context_data(form=form, saved=True))
            except AssayError as refusal:
                form.refused(refusal)
        return self.render_to_response(self.get_context_data(form=form), status=422)


class TokenRevokeView(ActionView):
    required_scope: ClassVar[str] = Scope.ADMIN

    def act(self) -> str:
        token = token_or_404(self)
        token_revoke(token=token, principal=self.principal)
        return f"“{token.name}” can no longer be used."

    def after(self) -> str:
        return reverse("web:token_list")
