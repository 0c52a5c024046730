"""The one-time login link of a local installation."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.generic.base import View

from accounts.forms import login_record
from accounts.one_time import ticket_user
from assay.web.errors import answer


class OneTimeLoginView(View):
    """Logs in whoever holds a fresh ticket; the login itself makes the ticket stale."""

    def get(self, request: HttpRequest, ticket: str) -> HttpResponse:
        user = ticket_user(ticket)
        if user is None:
            return answer(
                request, 403, "This login link was used already or has expired; start the platform again for a new one."
            )
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        login_record(user=user, by="one-time link")
        return HttpResponseRedirect("/")
