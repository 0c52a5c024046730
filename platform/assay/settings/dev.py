"""One machine, one command: secrets and servers of its own below the data folder."""

from __future__ import annotations

from assay.settings import env
from assay.settings.base import *  # noqa: F403
from assay.settings.base import ALLOWED_HOSTS as _GIVEN_HOSTS
from assay.settings.base import DATA_DIR, STATIC_ROOT, WEB_HOST

SECRETS = DATA_DIR / "secrets"
SECRET_KEY = env.secret("SECRET_KEY", create_in=SECRETS)
TOKEN_PEPPERS = env.peppers("TOKEN_PEPPERS", create_in=SECRETS)
DEBUG = env.boolean("DEBUG", False)
ALLOWED_HOSTS = _GIVEN_HOSTS or ["localhost", "127.0.0.1", "[::1]", WEB_HOST]
WHITENOISE_USE_FINDERS = True  # static files are served from where they lie, so a start needs no collecting
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
