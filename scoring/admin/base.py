from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Rows that only services write. Unbounded columns are not read for lists."""

    show_full_result_count = False
    list_per_page = 50
    deferred: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer(*self.deferred)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
