"""One JSON line per event on standard error, with the request id where there is one."""

from __future__ import annotations

import logging
import logging.config
from typing import Any

import structlog

from assay.token_form import tokens_hidden

HIDDEN = ("authorization", "password", "secret", "token", "cookie")


def logging_config(level: str) -> None:
    """Route structlog and the standard library's loggers through one JSON formatter."""
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": json_formatter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["stderr"], "level": level},
            "loggers": {
                "django.server": {"level": "WARNING"},
                "httpx": {"level": "WARNING"},
                "httpcore": {"level": "WARNING"},
            },
        }
    )


def json_formatter() -> logging.Formatter:
    """One line per record. The web server's own log (``granian_log.json``) uses it before any setting is read."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), structlog.stdlib.ExtraAdder(allow=())],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _without_traceback,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
            _hide_tokens,
        ],
    )


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_secrets,
    ]


def _without_traceback(_logger: Any, _method: str, event: Any) -> Any:
    """A request that is refused, as Django tells of it, is nobody's fault in the code."""
    if event.get("logger") == "django.request" and event.get("level") == "warning":
        event.pop("exc_info", None)
    return event


def _hide_tokens(_logger: Any, _method: str, line: Any) -> str:
    """Last of all, over the finished line: paths in messages, values in tracebacks, whatever an exception says."""
    return tokens_hidden(line)


def _hide_secrets(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    for key in event:
        if any(word in key.lower() for word in HIDDEN):
            event[key] = "***"
    return event
