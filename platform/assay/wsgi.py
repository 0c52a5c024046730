"""The WSGI application that the web server loads."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assay.settings.dev")

application = get_wsgi_application()
