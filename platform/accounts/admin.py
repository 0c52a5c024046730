"""Teams and tokens in the admin. A token's secret is shown once, in the message after its creation."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from accounts.models import ApiToken, Membership, Team
from accounts.scopes import Scope
from accounts.services import token_create, token_revoke


class MembershipInline(admin.TabularInline[Membership, Team]):
    model = Membership
    extra = 1


@admin.register(Team)
class TeamAdmin(admin.ModelAdmin[Team]):
    list_display = ("name", "created_at")
    inlines = (MembershipInline,)


class TokenForm(forms.ModelForm[ApiToken]):
    scopes = forms.MultipleChoiceField(choices=Scope.choices, widget=forms.CheckboxSelectMultiple)

    class Meta:
        model = ApiToken
        fields = ("name", "team", "scopes", "expires_at")


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    form = TokenForm
    list_display = ("name", "public_id", "team", "scopes", "enabled", "expires_at", "last_used_at", "created_by")
    list_filter = ("enabled", "team")
    search_fields = ("name", "public_id")
    actions = ("revoke",)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool) -> None:
        token, secret = token_create(
            team=obj.team,
            name=obj.name,
            scopes=form.cleaned_data["scopes"],
            created_by=request.user if request.user.is_authenticated else None,
            expires_at=obj.expires_at,
        )
        obj.__dict__.update(token.__dict__)
        self.message_user(request, f"The secret of this token, shown only now: {secret}", messages.WARNING)

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        # A token is made and revoked, never edited: what it may do is what was reviewed when it was made.
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Revoke the selected tokens", permissions=["add"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset.select_related("team"):
            token_revoke(token=token, actor=request.user if request.user.is_authenticated else None)
        self.message_user(request, f"{queryset.count()} tokens can no longer be used.", messages.SUCCESS)
