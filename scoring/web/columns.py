"""Which columns a list shows, and in which order: as its address says, else as the person chose last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.views.generic.base import View
from django_tables2 import SingleTableMixin, Table

from assay.web.mixins import PrincipalMixin
from scoring.selectors.table_choices import table_choice_of
from scoring.services.table_choices import table_choice_forget, table_choice_keep
from scoring.web.tables import TABLES

PARAMETER = "columns"


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """One column in the form that chooses them. The first of a table, which links to its rows, is always shown."""

    name: str
    title: str
    shown: bool
    fixed: bool


class ColumnsMixin(SingleTableMixin):
    """A list whose columns people choose. ``table_name`` is its key in ``scoring.web.tables.TABLES``."""

    request: HttpRequest
    table_name: ClassVar[str]

    def hidden_columns(self) -> tuple[str, ...]:
        """Columns of the table that this list has no use for."""
        return ()

    def get_table_class(self) -> type[Table]:
        return TABLES[self.table_name]

    def get_table_kwargs(self) -> dict[str, Any]:
        shown = shown_columns(self._columns(), self._chosen())
        rest = [name for name in _base_columns(self.get_table_class()) if name not in shown]
        return {**super().get_table_kwargs(), "sequence": [*shown, "..."], "exclude": rest}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        columns = self._columns()
        shown = shown_columns(columns, self._chosen())
        titles = {name: _title(name, column) for name, column in columns.items()}
        rest = [name for name in columns if name not in shown]
        fixed = next(iter(columns))
        context["table_name"] = self.table_name
        context["column_choices"] = [
            ColumnChoice(name, titles[name], name in shown, name == fixed) for name in (*shown, *rest)
        ]
        return context

    def _columns(self) -> dict[str, Any]:
        hidden = self.hidden_columns()
        return {name: column for name, column in _base_columns(self.get_table_class()).items() if name not in hidden}

    def _chosen(self) -> list[str]:
        given = self.request.GET.get(PARAMETER, "")
        return given.split(",") if given else table_choice_of(user=cast(User, self.request.user), table=self.table_name)


class ColumnsView(PrincipalMixin, View):
    """Keep a choice of columns, or forget it with ``do=reset``, and go back to the list with it in the address."""

    def post(self, request: HttpRequest, table: str) -> HttpResponse:
        if table not in TABLES:
            raise Http404
        user, columns = cast(User, request.user), _base_columns(TABLES[table])
        shown = shown_columns(columns, request.POST.getlist(PARAMETER))
        address = urlsplit(request.POST.get("next", ""))
        parameters = QueryDict(address.query, mutable=True)
        parameters.pop(PARAMETER, None)
        if request.POST.get("do") == "reset":
            table_choice_forget(user=user, table=table)
        else:
            table_choice_keep(user=user, table=table, columns=shown)
            parameters[PARAMETER] = ",".join(shown)
        # Only a path of this site is taken: nobody is sent to another one.
        path = f"/{address.path.lstrip('/')}"
        return HttpResponseRedirect(f"{path}?{parameters.urlencode(safe=',')}" if parameters else path)


def shown_columns(columns: dict[str, Any], chosen: list[str]) -> list[str]:
    """The chosen names that there are, behind the first column, which is always shown; all where none is chosen."""
    first, *_ = columns
    known = [name for name in dict.fromkeys(chosen) if name in columns and name != first]
    return [first, *known] if known else list(columns)


def _base_columns(table: type[Table]) -> dict[str, Any]:
    return cast(dict[str, Any], table.base_columns)


def _title(name: str, column: Any) -> str:
    return str(column.verbose_name or name.replace("_", " ").capitalize())
