"""``/api/v1/teams``: the team, or for a superuser all of them, and who belongs to them."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Membership, Team
from accounts.scopes import Role
from accounts.teams import may_see_all, member_remove, member_set, team_create
from assay.api.serializers import StrictSerializer, TextField
from scoring.api.openapi import BODY, LISTED, READ, operation
from scoring.api.resources import ResourceViewSet
from scoring.api.synchronous import validated


class TeamWriteSerializer(StrictSerializer):
    name = TextField(allow_blank=False, help_text="1 to 100 characters; no other team's")


class TeamSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()


class MemberWriteSerializer(StrictSerializer):
    username = TextField(allow_blank=False, help_text="Of a user that is there")
    role = serializers.ChoiceField(Role.choices)


class MemberSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(source="user.username")
    role = serializers.ChoiceField(Role.choices)


TEAM: Final[dict[str, Any]] = {"id": 7, "name": "search", "created_at": "2026-11-29T20:00:00Z"}
MEMBER: Final[dict[str, Any]] = {"username": "ada", "role": "analyst"}


@extend_schema(tags=["teams"])
class TeamViewSet(ResourceViewSet):
    required_scope = "admin"
    model = Team
    serializer_class = TeamSerializer
    lookup_value_converter = "int"

    def rows(self) -> QuerySet[Team]:
        return Team.objects.all() if may_see_all(self.principal) else Team.objects.filter(pk=self.principal.team.pk)

    @operation(
        "List the teams that one may see: one's own, or all of them as a superuser",
        answer=TeamSerializer(many=True), example=TEAM, errors=LISTED,
    )  # fmt: skip
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), TeamSerializer)

    @operation("One team", answer=TeamSerializer, example=TEAM, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: int) -> Response:
        return Response(TeamSerializer(self.found()).data)

    @operation(
        "Make a team; for superusers",
        request=TeamWriteSerializer, request_example={"name": "search"}, answer=TeamSerializer, example=TEAM,
        status=201, errors=(*BODY, 409),
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        team = team_create(principal=self.principal, **validated(TeamWriteSerializer, request))
        place = {"Location": self.reverse_action("detail", kwargs={"pk": team.pk})}
        return Response(TeamSerializer(team).data, status=201, headers=place)

    @operation(
        "List a team's members", answer=MemberSerializer(many=True), example=MEMBER, errors=LISTED,
    )  # fmt: skip
    @action(detail=True)
    def members(self, request: Request, pk: int) -> Response:
        return self.paged(Membership.objects.filter(team=self.found()).select_related("user"), MemberSerializer)

    @operation(
        "Make a user a member, or give a member another role",
        description="In force with the next request of that person and of the tokens that they made. 403 "
        "`exceeds_own_rights` for a role that may more than whoever gives it, and for every limited token.",
        request=MemberWriteSerializer, request_example=MEMBER, answer=MemberSerializer, example=MEMBER, status=201,
        other_answers={200: MemberSerializer}, errors=(*BODY, 404),
    )  # fmt: skip
    @members.mapping.post
    def member_set(self, request: Request, pk: int) -> Response:
        team = self.found()
        fields = validated(MemberWriteSerializer, request)
        membership, is_new = member_set(team=team, principal=self.principal, **fields)
        return Response(MemberSerializer(membership).data, status=201 if is_new else 200)

    @operation("Remove a member", answer=None, status=204, errors=(*READ, 404))
    @action(detail=True, methods=["delete"], url_path="members/<str:username>")
    def member(self, request: Request, pk: int, username: str) -> Response:
        member_remove(team=self.found(), username=username, principal=self.principal)
        return Response(status=204)
