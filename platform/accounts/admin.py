"""Users, teams and tokens in the admin. A token's secret is shown once, in the message after its creation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from accounts.limits import Quota
from accounts.models import ApiToken, Membership, Team
from accounts.scopes import Scope
from accounts.services import principal_in_team, token_change, token_create, token_revoke
from accounts.token_limits import checked_limits, own_rights_check
from assay.errors import AssayError
from audit.services import audit_record

LIMITS = ("name", "scopes", "allowed_models", "allowed_networks", "expires_at", *Quota.values)

admin.site.unregister((Group, User))


@admin.register(User)
class AuditedUserAdmin(UserAdmin[User], ModelAdmin):
    """Django's own, on the record: which fields were changed, not to what."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def save_model(self, request: HttpRequest, obj: User, form: ModelForm[User], change: bool) -> None:
        super().save_model(request, obj, form, change)
        verb = "user.changed" if change else "user.created"
        audit_record(verb=verb, actor=_actor(request), target=obj, detail={"fields": sorted(form.changed_data)})


@admin.register(Group)
class ThemedGroupAdmin(GroupAdmin, ModelAdmin):
    pass


class MembershipInline(TabularInline):
    model = Membership
    extra = 1


@admin.register(Team)
class TeamAdmin(ModelAdmin):
    list_display = ("name", "created_at")
    inlines = (MembershipInline,)

    def save_model(self, request: HttpRequest, obj: Team, form: ModelForm[Team], change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change or form.changed_data:
            verb = "team.changed" if change else "team.created"
            audit_record(verb=verb, actor=_actor(request), team=obj, target=obj)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        changed = [membership for membership, _ in formset.changed_objects]
        for verb, memberships in (
            ("member.added", formset.new_objects),
            ("member.changed", changed),
            ("member.removed", formset.deleted_objects),
        ):
            for membership in memberships:
                audit_record(verb=verb, actor=_actor(request), team=membership.team, target=membership)


class TokenForm(forms.ModelForm[ApiToken]):
    scopes = forms.MultipleChoiceField(choices=Scope.choices, widget=UnfoldAdminCheckboxSelectMultipleWidget)
    maker: ClassVar[User]

    class Meta:
        model = ApiToken
        fields = ("name", "team", *LIMITS[1:])

    def clean(self) -> dict[str, Any]:
        """The services' own rules, beside the field at fault."""
        fields = super().clean() or {}
        try:
            checked = checked_limits(changed_limits(self.instance, fields))
            if team := fields.get("team", self.instance.pk and self.instance.team):
                own_rights_check(principal_in_team(self.maker, team), checked)
        except AssayError as refusal:
            self.add_error(refusal.param, refusal.message)
        return fields


@admin.register(ApiToken)
class ApiTokenAdmin(ModelAdmin):
    form = TokenForm
    list_display = ("name", "public_id", "team", "scopes", "enabled", "expires_at", "last_used_at", "created_by")
    list_filter = ("enabled", "team")
    search_fields = ("name", "public_id")
    actions = ("revoke",)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return type("TokenForm", (super().get_form(request, *args, **kwargs),), {"maker": request.user})

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> tuple[str, ...]:
        return ("team", "public_id", "enabled", "created_by", "created_at", "last_used_at") if obj else ()

    def save_model(self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool) -> None:
        maker = _actor(request)
        if change:
            kept = ApiToken.objects.get(pk=obj.pk)  # ``obj`` has the form's values already
            token_change(
                token=kept, principal=principal_in_team(maker, obj.team), **changed_limits(kept, form.cleaned_data)
            )
            return
        fields = {name: form.cleaned_data[name] for name in LIMITS}
        token, secret = token_create(team=obj.team, created_by=maker, **fields)
        obj.__dict__.update(token.__dict__)
        self.message_user(request, f"The secret of this token, shown only now: {secret}", messages.WARNING)

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or obj.enabled)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Revoke the selected tokens", permissions=["add"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset.select_related("team"):
            token_revoke(token=token, actor=_actor(request))
        self.message_user(request, f"{queryset.count()} tokens can no longer be used.", messages.SUCCESS)


def changed_limits(token: ApiToken, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in LIMITS if name in fields and fields[name] != getattr(token, name)}


def _actor(request: HttpRequest) -> User:
    assert request.user.is_authenticated  # the admin lets nobody else in
    return request.user
