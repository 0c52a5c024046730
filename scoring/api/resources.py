"""What the resources under ``/api/v1/`` share: the principal, strict query parameters, pages by cursor."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from django_filters import FilterSet, MultipleChoiceFilter
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from assay.api.pagination import CursorPagination
from assay.api.principal import Principal, principal_of
from assay.api.sentences import problem, shortened
from assay.api.serializers import StrictSerializer, refuse_repeated
from assay.errors import AssayError
from scoring.filters import faults_of
from scoring.models.base import UploadedSet

PAGE_PARAMETERS = ("cursor", "page_size")


class Pagination(CursorPagination):
    """A cursor that was not made here is not found, and a page size that cannot be is refused rather than ignored."""

    invalid_cursor_message = "The cursor is not one that a page of this list gave; start without it."

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        try:
            return super().paginate_queryset(queryset, request, view=view)
        except (DjangoValidationError, ValueError) as error:
            raise NotFound(self.invalid_cursor_message) from error

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        shown = f"https://assay.example.org/api/v1/…?{self.cursor_query_param}=cD00ODY"
        properties = {"results": schema, "next": {**link, "example": shown}, "previous": {**link, "example": None}}
        return {"type": "object", "properties": properties, "required": list(properties)}

    def get_page_size(self, request: Request) -> int | None:
        given = request.query_params.get(self.page_size_query_param)
        if given is not None and not (
            given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= self.max_page_size
        ):
            message = f"page_size is {given[:20]!r}; give a whole number from 1 to {self.max_page_size}."
            raise serializers.ValidationError({"page_size": [message]})
        return super().get_page_size(request)


class PositionPagination(Pagination):
    """In the order of the uploaded file."""

    ordering = "position"


class StrictFilterBackend(DjangoFilterBackend):
    """A query parameter that no filter knows is refused: ``?stat=failed`` must not list everything."""

    def filter_queryset(self, request: Any, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        filterset = self.get_filterset(request, queryset, view)
        filters = filterset.filters if filterset else {}
        several = [name for name, one in filters.items() if isinstance(one, MultipleChoiceFilter)]
        refuse_unknown(request, [*filters, *PAGE_PARAMETERS], several=several)
        if filterset is None:
            return queryset
        for name, field in filterset.form.fields.items():
            if request.query_params.get(name) == "" and type(field) is not forms.CharField:
                # Django would take it for nothing, and list everything.
                raise serializers.ValidationError({name: [problem(name, field, "")]}, code="invalid")
        for name, message, code in faults_of(filterset):
            raise serializers.ValidationError({name: [message]}, code=code)
        return filterset.qs


class ResourceViewSet(GenericViewSet[Any]):
    """``required_scope`` reads; ``write_scope``, where there is one, changes. ``rows`` are what the principal sees."""

    model: ClassVar[type[Model]]
    required_scope: ClassVar[str]
    write_scope: ClassVar[str | None] = None
    pagination_class: Any = Pagination
    filter_backends: Any = (StrictFilterBackend,)
    filterset_class: type[FilterSet] | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.action is not None and not self.takes_query():  # without an action the method itself is refused
            refuse_unknown(request, ())

    def takes_query(self) -> bool:
        """Whether the operation reads query parameters, and so checks them itself."""
        return self.action not in ("retrieve", None) and self.request.method in SAFE_METHODS

    def rows(self) -> QuerySet[Any]:
        """By default the team's: another team's row is not found."""
        return self.model._default_manager.filter(team=self.principal.team)

    def get_queryset(self) -> QuerySet[Any]:
        if getattr(self, "swagger_fake_view", False):  # the schema is made without anybody being there
            return self.model._default_manager.none()
        return self.rows()

    def found(self) -> Any:
        """The row that the address names."""
        return get_object_or_404(self.get_queryset(), **{self.lookup_field: self.kwargs[self.lookup_field]})

    @property
    def principal(self) -> Principal:
        return principal_of(self.request)

    def paged(self, queryset: QuerySet[Any], serializer: type[serializers.BaseSerializer[Any]]) -> Response:
        """One page of what the query parameters leave of ``queryset``."""
        page = self.paginate_queryset(self.filter_queryset(queryset))
        return self.get_paginated_response(serializer(page, many=True).data)


def team_set(principal: Principal, model: type[UploadedSet], pk: Any, *, param: str | None, noun: str) -> Any:
    """The team's set that a field names. Raises AssayError 404: another team's is not found."""
    found = model.objects.for_team(principal.team).filter(pk=pk).first()
    if found is None:
        raise AssayError("not_found", f"There is no {noun} {pk} in your team.", status=404, param=param)
    return found


def refuse_unknown(request: Request, known: Collection[str], *, several: Collection[str] = ()) -> None:
    """Raises ValidationError for a query parameter not of ``known``, or given twice and not of ``several``."""
    for name in request.query_params:
        if name not in known:
            valid = ", ".join(sorted(known)) or "none"
            message = f"Unknown query parameter '{shortened(name)}'; the valid ones are: {valid}."
            raise serializers.ValidationError({name: [message]}, code="unknown_parameter")
    refuse_repeated(request.query_params, several=several)


def query_of(request: Request, serializer_class: type[StrictSerializer], *, paged: bool = False) -> dict[str, Any]:
    """The query parameters by ``serializer_class``, those of paging aside if the operation is ``paged``."""
    refuse_repeated(request.query_params)
    given = {name: value for name, value in request.query_params.items() if not (paged and name in PAGE_PARAMETERS)}
    query = serializer_class(data=given)
    query.is_valid(raise_exception=True)
    return query.validated_data
