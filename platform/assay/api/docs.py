"""The OpenAPI document, and Swagger UI under the site's content security policy."""

from __future__ import annotations

from functools import cache
from typing import Any

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView


@cache
def _document() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)


class OnceGenerator(SchemaGenerator):
    """The document is the same for everybody and takes a second: a process makes it once."""

    def get_schema(self, request: Any = None, public: bool = False) -> Any:
        return _document()


class SchemaView(SpectacularAPIView):
    generator_class = OnceGenerator


@method_decorator(csp_update({"style-src": [UNSAFE_INLINE]}), name="dispatch")
class SwaggerView(SpectacularSwaggerSplitView):
    """Its script is a request of its own, so only styles need an exception from the policy."""
