"""Many hosts behind TLS. Nothing secret has a default; what is not given stops the start with a sentence."""

from __future__ import annotations

from assay.settings import env
from assay.settings.base import *  # noqa: F403
from assay.settings.base import STORAGES

DATABASE_URL = env.url("DATABASE_URL", schemes=("postgresql", "postgres"))
REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss", "unix"))
SECRET_KEY = env.secret("SECRET_KEY")
TOKEN_PEPPERS = env.peppers("TOKEN_PEPPERS")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", required="the host names that clients use, separated by commas")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")

SECURE_SSL_REDIRECT = env.boolean("SECURE_SSL_REDIRECT", True)
SECURE_HSTS_SECONDS = env.integer("SECURE_HSTS_SECONDS", 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
# Only where a proxy that overwrites the header stands in front; anywhere else a client could claim TLS.
if env.boolean("TRUST_X_FORWARDED_PROTO", False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}}
