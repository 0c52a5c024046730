"""What administrators look up: the settings in force, and the people of the team."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.http import Http404
from django.urls import reverse
from django.views.generic import TemplateView

from accounts.models import Membership
from accounts.scopes import Role, Scope
from accounts.services import member_change, member_remove
from assay.errors import AssayError
from assay.settings.in_force import settings_in_force
from assay.web.mixins import PrincipalMixin
from scoring.selectors.people import members_of
from scoring.web.actions import ActionView


class SettingsView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.ADMIN
    template_name = "settings/settings.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(settings=settings_in_force(), **kwargs)


class PeopleView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.ADMIN
    template_name = "people/list.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        members = members_of(self.principal.team)
        return super().get_context_data(members=members, roles=Role.choices, **kwargs)


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices)


class MemberView(ActionView):
    required_scope: ClassVar[str] = Scope.ADMIN

    def member(self) -> Membership:
        member = members_of(self.principal.team).filter(pk=self.kwargs["pk"]).first()
        if member is None:
            raise Http404
        return member

    def after(self) -> str:
        return reverse("web:people")


class MemberRoleView(MemberView):
    def act(self) -> str:
        member, form = self.member(), RoleForm(self.request.POST)
        if not form.is_valid():
            raise AssayError(
                "invalid_role", f"Give one of the roles {', '.join(Role.values)}.", status=422, param="role"
            )
        member_change(principal=self.principal, member=member, role=Role(form.cleaned_data["role"]))
        return f"“{member.user}” is {member.role} now, from the next request on."


class MemberRemoveView(MemberView):
    def act(self) -> str:
        member = self.member()
        member_remove(principal=self.principal, member=member)
        return f"“{member.user}” belongs to this team no longer; tokens that they made stop working."
