"""A Celery message as its Redis transport keeps it, made without Celery.

``send_task`` takes a millisecond of processor time and a round trip of its own; a synchronous request has neither to
spare, and puts this into the pipeline that it sends anyway. Form: version 2 of Celery's message protocol in the
envelope of kombu's virtual transports. A test holds it against what Celery itself makes.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

import orjson

EMBEDDED: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
HEADERS: Final[dict[str, Any]] = {
    "lang": "py",
    "shadow": None,
    "eta": None,
    "expires": None,  # compares the clocks of two hosts
    "group": None,
    "group_index": None,
    "retries": 0,
    "timelimit": [None, None],
    "parent_id": None,
    "argsrepr": "(…)",  # the texts, for a log that nobody keeps
    "kwargsrepr": "{}",
    "ignore_result": True,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}
PROPERTIES: Final[dict[str, Any]] = {"delivery_mode": 2, "priority": 0, "argsrepr": "(…)", "kwargsrepr": "{}"}


def celery_message(task: str, argument: dict[str, Any], *, queue: str) -> bytes:
    """The element to push on the left of the list ``queue``: a call of ``task`` with one argument."""
    task_id = str(uuid.uuid4())
    return orjson.dumps(
        {
            "body": orjson.dumps([[argument], {}, EMBEDDED]).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {**HEADERS, "task": task, "id": task_id, "root_id": task_id, "origin": "assay"},
            "properties": {
                **PROPERTIES,
                "correlation_id": task_id,
                "reply_to": "",
                "delivery_info": {"exchange": "", "routing_key": queue},
                "delivery_tag": task_id,
            },
        }
    )
