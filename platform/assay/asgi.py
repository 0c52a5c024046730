"""The ASGI application that the web server loads."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.dev")
handler = get_wsgi_application()

from assay.server import Application  # noqa: E402  its imports need the applications that are loaded by now

application = Application(handler)
