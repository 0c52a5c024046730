"""Swagger UI under the site's content security policy."""

from __future__ import annotations

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.views import SpectacularSwaggerSplitView


@method_decorator(csp_update({"style-src": [UNSAFE_INLINE]}), name="dispatch")
class SwaggerView(SpectacularSwaggerSplitView):
    """Its script is a request of its own, so only styles need an exception from the policy."""
