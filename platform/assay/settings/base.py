"""What every way of running shares. Values that differ between installations come from ``env``."""

from __future__ import annotations

import django_stubs_ext
from csp.constants import NONE, SELF

from assay import embedded
from assay.log import logging_config
from assay.settings import env

django_stubs_ext.monkeypatch()  # Django's generic classes may be written with their type, e.g. ModelAdmin[Team]

ROOT = env.ROOT
DATA_DIR = env.data_dir()
EXAMPLES_DIR = ROOT / "examples"

# --- What runs where -------------------------------------------------------------------------------------------------
DATABASE_URL = env.url("DATABASE_URL", schemes=("postgresql", "postgres"), default=embedded.database_url(DATA_DIR))
# A pooler in transaction mode (PgBouncer) hands each transaction to another connection of the server: a cursor that is
# kept open between them would be gone.
DATABASE_POOLED = env.boolean("DATABASE_POOLED", False)
REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss", "unix"), default=embedded.redis_url(DATA_DIR))
WEB_HOST = env.text("WEB_HOST", "127.0.0.1")
WEB_PORT = env.integer("WEB_PORT", 8000, minimum=1, maximum=65535)
WEB_PROCESSES = env.integer("WEB_PROCESSES", 1, minimum=1, maximum=64)
WEB_THREADS = env.integer("WEB_THREADS", 96, minimum=2, maximum=512)
DRAIN_SECONDS = env.integer("DRAIN_SECONDS", 15, minimum=1, maximum=600)
TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES")  # whose word in X-Forwarded-For counts

# --- Workers ---------------------------------------------------------------------------------------------------------
DEVICE = env.choice("DEVICE", "auto", pattern=r"auto|cpu|cuda(:\d{1,2})?", valid="auto, cpu, cuda or cuda:N")
MODEL_ROOTS = env.folders("MODEL_ROOTS")
MODEL_HUB_URL = env.choice(
    "MODEL_HUB_URL", "", pattern=r"(https?://[\w.-]+(:\d{1,5})?)?", valid="an address such as https://huggingface.co"
)
WORKER_THREADS = env.integer("WORKER_THREADS", 16, minimum=2, maximum=256)
ENGINE_THREADS = env.integer("ENGINE_THREADS", 0, maximum=1024)  # 0: as many as there are cores
DOCUMENT_CACHE_BYTES = env.integer("DOCUMENT_CACHE_BYTES", 1 << 30)
PACKED_SET_BYTES = env.integer("PACKED_SET_BYTES", 1 << 30)
DISK_CACHE_BYTES = env.integer("DISK_CACHE_BYTES", 0)  # 0: nothing of a document stays on the disk
CACHE_DTYPE = env.choice("CACHE_DTYPE", "model", pattern="model|float16|int8", valid="model, float16 or int8")
BM25_INDEX_BYTES = env.integer("BM25_INDEX_BYTES", 8 << 30)
CHUNK_SECONDS = env.integer("CHUNK_SECONDS", 5, maximum=300)  # 0: the same size whatever the speed
LEASE_SECONDS = env.integer("LEASE_SECONDS", 30, minimum=3)
STALL_SECONDS = env.integer("STALL_SECONDS", 120, minimum=5)
HEARTBEAT_SECONDS = env.integer("HEARTBEAT_SECONDS", 3, minimum=1)
WORKER_MEMORY_BYTES = env.integer("WORKER_MEMORY_BYTES", 0)  # 0: a share of what the device has
WORKER_MEMORY_RESERVE_BYTES = env.integer("WORKER_MEMORY_RESERVE_BYTES", 1 << 30)
MIN_RESIDENCY_SECONDS = env.integer("MIN_RESIDENCY_SECONDS", 60)
CANARY_SECONDS = env.integer("CANARY_SECONDS", 300, minimum=1)

# --- Limits of a user's jobs, where no row says otherwise -------------------------------------------------------------
JOBS_RUNNING_PER_USER = env.integer("JOBS_RUNNING_PER_USER", 20, minimum=1)
JOBS_WAITING_PER_USER = env.integer("JOBS_WAITING_PER_USER", 200)
PAIRS_OPEN_PER_USER = env.integer("PAIRS_OPEN_PER_USER", 1_000_000_000, minimum=1)

# --- Limits of a request ---------------------------------------------------------------------------------------------
MAX_DOCUMENTS_PER_REQUEST = env.integer("MAX_DOCUMENTS_PER_REQUEST", 1000, minimum=1)
MAX_BODY_BYTES = env.integer("MAX_BODY_BYTES", 32 << 20, minimum=1024)
UPLOAD_MAX_BYTES = env.integer("UPLOAD_MAX_BYTES", 2 << 30, minimum=1024)
SYNC_TIMEOUT_MS = env.integer("SYNC_TIMEOUT_MS", 30_000, minimum=10)
SYNC_TIMEOUT_MAX_MS = env.integer("SYNC_TIMEOUT_MAX_MS", 120_000, minimum=SYNC_TIMEOUT_MS)
COLD_WAIT_SECONDS = env.integer("COLD_WAIT_SECONDS", 120, minimum=1, maximum=600)
COLD_WAITERS = env.integer("COLD_WAITERS", 64, minimum=1)  # requests that may wait for one model at once
WORKER_RETURN_SECONDS = env.integer("WORKER_RETURN_SECONDS", 30, maximum=600)
KEEP_REQUEST_TEXTS = env.boolean("KEEP_REQUEST_TEXTS", False)
UPLOAD_KEEP_HOURS = env.integer("UPLOAD_KEEP_HOURS", 24, minimum=1)
TEXT_KEEP_DAYS = env.integer("TEXT_KEEP_DAYS", 0)  # 0: for ever
EXPORT_ROWS = env.integer("EXPORT_ROWS", 100_000, minimum=1)
EXPORT_KEEP_HOURS = env.integer("EXPORT_KEEP_HOURS", 72, minimum=1)
KEEP_CHUNK_SCORES_DAYS = env.integer("KEEP_CHUNK_SCORES_DAYS", 30)  # 0: for ever

# --- What the platform asks of other hosts (assay.outgoing) -----------------------------------------------------------
OUTGOING_ALLOWED_HOSTS = env.hosts("OUTGOING_ALLOWED_HOSTS")
OUTGOING_CA_FILE = env.file("OUTGOING_CA_FILE")
REMOTE_CREDENTIALS = env.credentials("REMOTE_CREDENTIALS")
WEBHOOK_KEEP_DAYS = env.integer("WEBHOOK_KEEP_DAYS", 30, minimum=1)

SNAPSHOT_SECONDS = 2.0  # so long a web process shows all tabs the same reading of what renews itself

# --- Django ----------------------------------------------------------------------------------------------------------
DEBUG = False
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS")
INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",  # before the administration, whose templates it replaces
    "assay.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "csp",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rest_framework",
    "assay.apps.AssayConfig",
    "accounts.apps.AccountsConfig",
    "audit.apps.AuditConfig",
    "scoring.apps.ScoringConfig",
    "workers.apps.WorkersConfig",
]
MIDDLEWARE = [
    "assay.web.middleware.RequestIdMiddleware",
    "assay.web.middleware.ProbeMiddleware",
    "assay.web.middleware.MetricsMiddleware",
    "assay.web.middleware.BodyLengthMiddleware",
    "assay.web.bodies.CompressionMiddleware",
    "assay.web.bodies.ContentEncodingMiddleware",
    "assay.web.middleware.TokenInAddressMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "assay.urls"
WSGI_APPLICATION = "assay.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        **env.postgres(DATABASE_URL),
        # Threads of the web server and the workers live long, so each keeps its connection and checks it before use.
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": DATABASE_POOLED,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
FORM_RENDERER = "django.forms.renderers.DjangoTemplates"
# The administration's theme. Its colours are in a file, as a style in the page would break the security policy.
UNFOLD = {
    "SITE_TITLE": "Assay",
    "SITE_HEADER": "Assay administration",
    "SITE_URL": "/",
    "SITE_SYMBOL": "balance",
    "STYLES": ["/static/admin-theme.css"],
    "SCRIPTS": ["/static/admin.js"],
    "SIDEBAR": {"show_search": True, "show_all_applications": True},
}
DJANGO_TABLES2_TEMPLATE = "components/table.html"

STATIC_URL = "/static/"
STATIC_ROOT = env.folder("STATIC_ROOT", DATA_DIR / "static")
STATICFILES_DIRS = [ROOT / "static"]
MEDIA_ROOT = DATA_DIR / "files"
STORAGES = {
    "default": env.storage("STORAGE_URL"),
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
FILE_UPLOAD_TEMP_DIR = DATA_DIR / "uploads"
FILE_UPLOAD_TEMP_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
FILE_UPLOAD_HANDLERS = ["assay.uploads.UnnamedFileUploadHandler"]
FILE_UPLOAD_PERMISSIONS = 0o600
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
DATA_UPLOAD_MAX_NUMBER_FIELDS = 500

PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_NAME = "assay_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "assay.web.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# --- API -------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "assay.api.authentication.TokenAuthentication",
        "assay.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["assay.api.permissions.HasScope"],
    "DEFAULT_PARSER_CLASSES": ["assay.api.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "assay.api.pagination.CursorPagination",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "assay.api.errors.exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "STRICT_JSON": True,
    "PAGE_SIZE": 50,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Assay",
    "DESCRIPTION": "Scoring and reranking, at once or as a batch job.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "scoring.api.links.links_add",
    ],
    "ENUM_NAME_OVERRIDES": {
        "TextRoleEnum": ["query", "document"],
        "CohereInputTypeEnum": ["search_query", "search_document"],
    },
}

# --- Celery: it carries wake-ups and single requests; the truth is in PostgreSQL, so no result is ever kept -----------
CELERY_BROKER_URL = env.celery_broker(REDIS_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Else two round trips a message, to keep what its caller would have asked elsewhere long before.
    "ack_emulation": False,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "socket_timeout": 30,
    "socket_connect_timeout": 5,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "batch"
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", pattern="DEBUG|INFO|WARNING|ERROR", valid="DEBUG, INFO, WARNING or ERROR")
LOGGING_CONFIG = None
logging_config(LOG_LEVEL)
