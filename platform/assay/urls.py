"""The root of all addresses but the probes' (see ``assay.web.middleware``); the domain's are included by name."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from accounts.forms import AdminLoginForm
from assay.api.docs import SchemaView, SwaggerView

admin.site.index_title = "Administration"
admin.site.login_form = AdminLoginForm

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("accounts.urls")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", SwaggerView.as_view(url_name="schema"), name="docs"),
    path("", include("scoring.urls")),
]

handler400 = "assay.web.errors.bad_request"
handler403 = "assay.web.errors.forbidden"
handler404 = "assay.web.errors.not_found"
handler500 = "assay.web.errors.server_error"
