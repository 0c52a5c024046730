"""Models and workers: what everybody sees, what only administrators may do, on the pages and in the admin."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from audit.models import AuditEvent
from scoring.models import Placement, ScoringModel, Worker
from scoring.models.scoring_model import ModelKind
from scoring.states import ModelState
from tests.web import factories
from tests.web.conftest import World, text_of

TABLES = (
    "chunk", "document", "documentset", "errand", "job", "judgement", "judgementset", "modeljudging", "placement",
    "pool", "query", "queryresult", "queryset", "scorerequest", "scoringmodel", "thresholdadvice", "transition",
    "upload", "worker",
)  # fmt: skip


def action(name: str) -> str:
    return reverse("web:model_action", args=["late", name])


def test_the_model_page_shows_the_self_test_and_what_is_in_force(browser_client: Client, world: World) -> None:
    page = text_of(browser_client.get(reverse("web:model_detail", args=["late"])))
    assert "The relevant text scored 0.62, the irrelevant one 0.08." in page
    assert "0123456789abcdef" in page and "worker-1" in page and "as wanted" in page
    assert action("load") not in page and 'role="switch"' not in page


@pytest.mark.parametrize("name", ["load", "unload", "reload", "self-test", "disable", "gpu-maxsim"])
def test_only_who_may_change_models_does(browser_client: Client, world: World, name: str) -> None:
    assert browser_client.post(action(name)).status_code == 403
    world.model.refresh_from_db()
    assert world.model.gpu_maxsim and world.model.state == ModelState.AVAILABLE


def test_the_toggle_is_a_new_generation_that_workers_must_follow(admin_page: Client, world: World) -> None:
    page = text_of(admin_page.post(action("gpu-maxsim"), follow=True))
    world.model.refresh_from_db()
    assert not world.model.gpu_maxsim and world.model.generation == 2 and world.model.state == ModelState.AVAILABLE
    assert "switched off" in page and 'aria-checked="false"' in page and "a change is on its way" in page
    Placement.objects.update(generation=2)
    placements = text_of(admin_page.get(reverse("web:model_placements", args=["late"])))
    assert "as wanted" in placements and "on its way" not in placements


def test_the_budget_of_the_caches_is_set_where_it_is_shown(admin_page: Client, admin: User, world: World) -> None:
    url, placing = reverse("web:model_detail", args=["late"]), reverse("web:model_placing", args=["late"])
    assert "as many as the caches of a worker have room for" in text_of(admin_page.get(url))
    fields = {"min_replicas": "0", "document_cache_bytes": str(64 << 20)}
    page = text_of(admin_page.post(placing, fields, follow=True))
    assert "at most 64.0" in page and "document cache bytes: none → 67108864" in page
    assert f'name="document_cache_bytes" value="{64 << 20}"' in page and "a change is on its way" in page
    kept = {"late": {"bytes": 12 << 20, "device_bytes": 0, "budget_bytes": 64 << 20}}
    Worker.objects.update(statistics={"documents_kept": kept})
    workers = admin_page.get(reverse("web:worker_list"))
    for shown in (admin_page.get(reverse("web:model_placements", args=["late"])), workers):
        assert "documents kept 12.0 MiB of 64.0 MiB" in text_of(shown).replace("\xa0", " ")
    assert "67108864 → 0" in text_of(admin_page.post(placing, {**fields, "document_cache_bytes": "0"}, follow=True))
    refused = admin_page.post(placing, {**fields, "document_cache_bytes": "-1"}, follow=True)
    assert "Document cache, at most: Ensure this value is greater than or equal to 0" in text_of(refused)
    world.model.refresh_from_db()
    assert (world.model.document_cache_bytes, world.model.generation, world.model.state) == (0, 3, "available")
    factories.served_model(admin, world.worker, name="pairs", kind=ModelKind.CROSS_ENCODER)
    assert "document_cache_bytes" not in admin_page.get(reverse("web:model_detail", args=["pairs"])).content.decode()


def test_the_buttons_ask_the_services(admin_page: Client, world: World) -> None:
    assert "1 worker asked to reload" in text_of(admin_page.post(action("reload"), follow=True))
    assert Placement.objects.get().reload_requested == 1
    assert "1 worker asked to unload" in text_of(admin_page.post(action("unload"), follow=True))
    assert not Placement.objects.get().present
    assert "1 worker asked to load" in text_of(admin_page.post(action("load"), follow=True))
    assert Placement.objects.get().present
    admin_page.post(action("disable"))
    world.model.refresh_from_db()
    assert world.model.state == ModelState.DISABLED
    assert "not served" in text_of(admin_page.post(action("load"), follow=True))
    admin_page.post(action("self-test"))
    world.model.refresh_from_db()
    assert world.model.state == ModelState.REGISTERED
    assert admin_page.post(action("explode")).status_code == 404
    assert admin_page.get(action("load")).status_code == 405


def test_workers_are_shown_with_what_they_hold(browser_client: Client, world: World) -> None:
    page = text_of(browser_client.get(reverse("web:worker_list")))
    assert "worker-1" in page and "512.0" in page and "late" in page and "as wanted" in page
    part = browser_client.get(reverse("web:worker_list"), headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part and "worker-1" in part


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_in_the_admin(admin_page: Client, world: World, table: str) -> None:
    listed = admin_page.get(reverse(f"admin:scoring_{table}_changelist"))
    assert listed.status_code == 200
    assert "Pull the tick straight out" not in listed.content.decode()


def test_rows_that_services_write_cannot_be_edited(admin_page: Client, world: World) -> None:
    for table in set(TABLES) - {"scoringmodel"}:
        assert admin_page.get(reverse(f"admin:scoring_{table}_add")).status_code == 403
    job = admin_page.get(reverse("admin:scoring_job_change", args=[world.job.pk]))
    assert job.status_code == 200 and 'name="_save"' not in job.content.decode()
    admin_page.post(reverse("admin:scoring_job_change", args=[world.job.pk]), {"name": "changed"})
    world.job.refresh_from_db()
    assert world.job.name != "changed"


def test_the_admin_registers_through_the_registry(admin_page: Client, world: World) -> None:
    fields = {
        "name": "judge", "kind": ModelKind.GENERATIVE, "source": "package:x/y", "device": "auto", "dtype": "auto",
        "template": "", "labels": '["yes", "no"]', "self_test_mode": "full", "gpu_maxsim": "on", "gguf_file": "",
        "min_replicas": "0", "engine": "local",
    }  # fmt: skip
    url = reverse("admin:scoring_scoringmodel_add")
    refused = text_of(admin_page.post(url, {**fields, "labels": "[]"}))
    assert "needs at least two labels" in refused
    refused = text_of(admin_page.post(url, {**fields, "device": "tpu"}))
    assert "give auto, cpu, cuda or cuda:N" in refused
    assert not ScoringModel.objects.filter(name="judge").exists()
    assert admin_page.post(url, fields).status_code == 302
    model = ScoringModel.objects.get(name="judge")
    assert model.state == ModelState.REGISTERED and model.created_by is not None
    assert AuditEvent.objects.filter(verb="model.registered", target_id=str(model.pk)).exists()


def test_the_admin_changes_through_the_registry(admin_page: Client, world: World) -> None:
    url = reverse("admin:scoring_scoringmodel_change", args=[world.model.pk])
    page = text_of(admin_page.get(url))
    assert "The relevant text scored 0.62" in page and "worker-1: Ready, as wanted, MaxSim on cpu" in page
    fields = {
        "name": "late", "kind": ModelKind.LATE_INTERACTION, "source": "package:some/late", "device": "cpu",
        "dtype": "auto", "template": "", "labels": "[]", "self_test_mode": "full", "gpu_maxsim": "on", "gguf_file": "",
        "min_replicas": "0", "engine": "local",
    }  # fmt: skip
    assert admin_page.post(url, fields).status_code == 302
    world.model.refresh_from_db()
    assert world.model.device == "cpu" and world.model.generation == 2
    assert world.model.state == ModelState.REGISTERED, "what decides the scores needs a new self-test"
    assert AuditEvent.objects.get(verb="model.changed").detail == {"device": ["auto", "cpu"]}


def test_the_toggle_in_the_admins_list_goes_through_the_registry(admin_page: Client, world: World) -> None:
    data = {
        "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-0-id": str(world.model.pk), "_save": "Save",
    }  # fmt: skip
    admin_page.post(reverse("admin:scoring_scoringmodel_changelist"), data)  # the box is not ticked
    world.model.refresh_from_db()
    assert not world.model.gpu_maxsim and world.model.generation == 2 and world.model.state == ModelState.AVAILABLE
    assert AuditEvent.objects.get(verb="model.changed").detail == {"gpu_maxsim": [True, False]}


def test_the_admins_actions_ask_the_services(admin_page: Client, admin: User, world: World) -> None:
    url = reverse("admin:scoring_scoringmodel_changelist")
    chosen = {"_selected_action": [str(world.model.pk)]}
    page = text_of(admin_page.post(url, {**chosen, "action": "reload"}, follow=True))
    assert "1 workers asked to reload" in page and Placement.objects.get().reload_requested == 1
    admin_page.post(url, {**chosen, "action": "disable"})
    page = text_of(admin_page.post(url, {**chosen, "action": "load"}, follow=True))
    assert "not served" in page
    job = factories.submitted(
        admin, factories.served_model(admin, world.worker, name="two"), world.documents, world.queries
    )
    admin_page.post(
        reverse("admin:scoring_job_changelist"), {"_selected_action": [str(job.pk)], "action": "cancel"}, follow=True
    )
    job.refresh_from_db()
    assert job.state == "cancelling"


def test_the_log_tells_what_was_asked_for_beside_the_states(admin_page: Client, world: World) -> None:
    admin_page.post(action("gpu-maxsim"))
    admin_page.post(action("reload"))
    page = text_of(admin_page.get(reverse("web:model_detail", args=["late"])))
    log = page[page.index('<ol class="log">') :]
    assert "gpu maxsim: on → off" in log
    assert log.index("asked to reload model late") < log.index("changed model late") < log.index("available")
