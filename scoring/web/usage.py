"""What was used: by day, model, token and source, as it was rolled up."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.api.sentences import shortened
from assay.web.mixins import PrincipalMixin
from scoring.export.usage import usage_table
from scoring.selectors.usage import ALL_TEAMS_GROUPS, FIGURES, GROUPS, usage_totals
from scoring.web.exports import Choice, export_choices
from scoring.web.figures import histogram

USUAL_DAYS: Final = 30
MOST_DAYS: Final = 366
TITLES: Final = {
    "day": "Day", "team": "Team", "model": "Model", "token": "Token", "source": "Source", "requests": "Requests",
    "errors": "Refused or failed", "documents": "Documents", "tokens": "Tokens", "compute_seconds": "Compute seconds",
}  # fmt: skip


class UsageForm(forms.Form):
    first = forms.DateField(label="From", widget=forms.DateInput(attrs={"type": "date"}))
    last = forms.DateField(label="To", widget=forms.DateInput(attrs={"type": "date"}))
    by = forms.ChoiceField(label="By")
    figure = forms.ChoiceField(label="Chart of", choices=[(name, TITLES[name]) for name in FIGURES])

    def __init__(self, *args: Any, all_teams: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unknown = [name for name in self.data if name not in self.fields]
        groups = ALL_TEAMS_GROUPS if all_teams else GROUPS
        self.fields["by"].choices = [(name, TITLES[name]) for name in groups]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if self._unknown:
            known, unknown = ", ".join(self.fields), shortened(self._unknown[0])
            raise forms.ValidationError(f"There is no filter '{unknown}'; the filters are: {known}.")
        first, last = fields.get("first"), fields.get("last")
        if first and last and not 0 <= (last - first).days < MOST_DAYS:
            raise forms.ValidationError(f"From {first} to {last} must be 1 to {MOST_DAYS} days; ask for less.")
        return fields


class UsageView(PrincipalMixin, TemplateView):
    """Of the own team; who runs the installation sees all teams, and may tell them apart."""

    required_scope: ClassVar[str] = Scope.SCORE
    template_name = "usage/usage.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        form = self._form()
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=422)
        return self.render_to_response(self._context(form))

    def _form(self) -> UsageForm:
        today = datetime.now(UTC).date()
        usual = {
            "first": today - timedelta(days=USUAL_DAYS - 1), "last": today, "by": "model", "figure": "documents",
        }  # fmt: skip
        return UsageForm(usual | self.request.GET.dict(), all_teams=self._all_teams)

    @property
    def _all_teams(self) -> bool:
        return self.principal.user is not None and self.principal.user.is_superuser

    def _lines(self, asked: dict[str, Any], *by: str) -> list[dict[str, Any]]:
        team = None if self._all_teams else self.principal.team
        return usage_totals(team=team, first=asked["first"], last=asked["last"], group_by=by)

    def _context(self, form: UsageForm) -> dict[str, Any]:
        asked = form.cleaned_data
        by, figure = asked["by"], asked["figure"]
        lines = self._lines(asked, by)
        per_day: dict[date, float] = defaultdict(float)
        for line in self._lines(asked, "day"):
            per_day[line["day"]] = line[figure]
        days = [asked["first"] + timedelta(days=place) for place in range((asked["last"] - asked["first"]).days + 1)]
        totals = {name: sum(line[name] for line in lines) for name in FIGURES}
        return self.get_context_data(
            form=form, lines=lines, by=by, by_title=TITLES[by], totals=totals, all_teams=self._all_teams,
            histogram=histogram(
                [(str(day), per_day[day]) for day in days], caption=f"{TITLES[figure]} per day", unit=TITLES[figure]
            ),
            exports=self._exports(asked),
        )  # fmt: skip

    def _exports(self, asked: dict[str, Any]) -> list[Choice]:
        """Every day for itself: what the chart shows, and what it is made of."""
        parameters = {name: str(asked[name]) for name in ("first", "last", "by")}
        return export_choices("usage", parameters=parameters, count=usage_table(self.principal, parameters).count)
