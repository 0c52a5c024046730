"""Cursor pagination: pages stay right while rows arrive."""

from __future__ import annotations

from typing import Any

from rest_framework import pagination
from rest_framework.response import Response


class CursorPagination(pagination.CursorPagination):
    """Newest first by primary key. ``?page_size=`` up to 500; a view may set another unique ``ordering``."""

    ordering = "-pk"
    page_size_query_param = "page_size"
    max_page_size = 500

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()})
