"""JSON for the endpoints whose answers are large and frequent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from django.utils.encoding import force_str
from rest_framework.renderers import BaseRenderer


class FastJSONRenderer(BaseRenderer):
    """Plain values only. Scores are numbers or None by the time they come here, so no NaN can become a null."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data, default=force_str)
