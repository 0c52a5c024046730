"""The message that we make is the one that Celery would have made."""

from __future__ import annotations

import json
from typing import Any

from celery import Celery

from scoring.celery_message import celery_message

OF_EACH_MESSAGE = {"id", "root_id", "correlation_id", "delivery_tag", "reply_to", "origin"}
ARGUMENT = {"documents": ['Honig für "Bären"', "\u2028 \U0001f41d \x00"], "deadline": 1.5, "none": None}


def test_it_is_what_celery_makes() -> None:
    app = Celery("other", broker="memory://", set_as_current=False)
    options: dict[str, Any] = {"ignore_result": True, "retry": False, "argsrepr": "(…)", "kwargsrepr": "{}"}
    app.send_task("workers.answer", args=[ARGUMENT], queue="w.1", declare=[], **options)
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        theirs = channel._get("w.1")
        ours = json.loads(celery_message("workers.answer", ARGUMENT, queue="w.1"))
        told, heard = (channel.message_to_python(message).decode() for message in (ours, theirs))
    assert told == heard == [[ARGUMENT], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    del theirs["body"], ours["body"], theirs["properties"]["body_encoding"]  # ours has no second encoding
    for part in ("headers", "properties"):
        assert ours[part].keys() == theirs[part].keys()
        for name in OF_EACH_MESSAGE & ours[part].keys():
            ours[part][name] = theirs[part][name]
    assert ours == theirs


def test_no_two_are_one_message() -> None:
    first, second = (json.loads(celery_message("a", {}, queue="q")) for _ in range(2))
    assert first["headers"]["id"] != second["headers"]["id"]
    assert first["properties"]["delivery_tag"] != second["properties"]["delivery_tag"]
