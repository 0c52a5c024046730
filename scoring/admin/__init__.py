"""The tables in Django's admin. What changes anything goes through the services; the rest is there to be read."""

from scoring.admin import errands, jobs, judging, model_alias, requests, scoring_model, sets, usage, workers  # noqa: F401 - each registers its tables
