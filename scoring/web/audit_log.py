"""The audit log of the team: who did what, and when."""

from __future__ import annotations

from typing import Any, ClassVar

from accounts.scopes import Scope
from audit.models import AuditEvent
from scoring.filters import AuditEventFilter
from scoring.web.admin_tables import AuditTable
from scoring.web.exports import ExportsMixin
from scoring.web.filtered import FilteredListView
from scoring.web.paging import TablePaginator

SHOWN: tuple[str, ...] = ("actor", "verb", "target_id", "at_or_after", "before")


class AuditLogView(ExportsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.ADMIN
    table_class = AuditTable
    export_source = "audit-events"
    filterset_class = AuditEventFilter
    template_name = "audit/list.html"
    table_pagination: ClassVar[dict[str, Any]] = {"paginator_class": TablePaginator, "per_page": 50}

    def get_queryset(self) -> Any:
        return AuditEvent.objects.filter(team=self.principal.team).order_by("-at")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        form = context["filter"].form
        return {**context, "fields": [form[name] for name in SHOWN]}
