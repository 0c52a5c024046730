from __future__ import annotations

from django.urls import path, register_converter

from scoring.web import (
    agreement,
    audit_log,
    columns,
    comparison_page,
    comparisons,
    components,
    encodings,
    evaluation_page,
    evaluations,
    explanation,
    exports,
    home,
    installation,
    job_actions,
    job_new,
    job_page,
    jobs,
    judging,
    leaderboard,
    model_new,
    models,
    playground,
    pools,
    queue,
    reports,
    result_actions,
    score_requests,
    sets,
    thresholds,
    tokens,
    uploads,
    usage,
    webhooks,
    workers,
)
from scoring.web.set_kinds import SetKindConverter

register_converter(SetKindConverter, "set_kind")

app_name = "web"
urlpatterns = [
    # Pages that are not ours, such as the admin's, name no icon, and browsers then ask here.
    path("favicon.ico", home.FaviconView.as_view()),
    path("", home.HomeView.as_view(), name="home"),
    path("running/", home.RunningJobsView.as_view(), name="running"),
    path("samples/", home.SamplesView.as_view(), name="samples"),
    path("components/", components.ComponentsView.as_view(), name="components"),
    path("columns/<slug:table>/", columns.ColumnsView.as_view(), name="columns"),
    path("exports/", exports.ExportListView.as_view(), name="export_list"),
    path("exports/<uuid:pk>/file/", exports.ExportFileView.as_view(), name="export_file"),
    path("exports/<uuid:pk>/delete/", exports.ExportDeleteView.as_view(), name="export_delete"),
    path("export/<slug:table>/", exports.ExportView.as_view(), name="export"),
    path("jobs/", jobs.JobListView.as_view(), name="job_list"),
    path("jobs/new/", job_new.JobNewView.as_view(), name="job_new"),
    path("jobs/new/size/", job_new.JobSizeView.as_view(), name="job_size"),
    path("jobs/new/trial/", job_new.JobTrialView.as_view(), name="job_trial"),
    path("jobs/<uuid:pk>/explanation/", explanation.JobExplanationView.as_view(), name="job_explanation"),
    path("jobs/<uuid:pk>/", job_page.JobDetailView.as_view(), name="job_detail"),
    path("jobs/<uuid:pk>/details/", job_page.JobDetailsView.as_view(), name="job_details"),
    path("jobs/<uuid:pk>/evaluation/", job_page.JobEvaluationView.as_view(), name="job_evaluation"),
    path("jobs/<uuid:pk>/progress/", job_page.JobProgressView.as_view(), name="job_progress"),
    *(
        path(f"jobs/<uuid:pk>/{move}/", job_actions.JobMoveView.as_view(move=move), name=f"job_{move}")
        for move in job_actions.MOVES
    ),
    *(
        path(f"jobs/<uuid:pk>/{move}/", job_actions.JobPriorityView.as_view(move=move), name=f"job_{move}")
        for move in job_actions.STEPS
    ),
    path("jobs/<uuid:pk>/change/", job_actions.JobChangeView.as_view(), name="job_change"),
    path("jobs/<uuid:pk>/clone/", job_actions.JobCloneView.as_view(), name="job_clone"),
    path("jobs/<uuid:pk>/delete/", job_actions.JobDeleteView.as_view(), name="job_delete"),
    path("jobs/<uuid:pk>/keep/", result_actions.ResultKeepView.as_view(), name="result_keep"),
    path("jobs/<uuid:pk>/passage/", result_actions.ResultPassageView.as_view(), name="result_passage"),
    path("jobs/<uuid:pk>/judge/", judging.ResultJudgeView.as_view(), name="result_judge"),
    path("pools/", pools.PoolListView.as_view(), name="pool_list"),
    path("pools/new/", pools.PoolNewView.as_view(), name="pool_new"),
    path("pools/<uuid:pk>/", pools.PoolDetailView.as_view(), name="pool_detail"),
    path("pools/<uuid:pk>/agreement/", agreement.PoolAgreementView.as_view(), name="pool_agreement"),
    path("pools/<uuid:pk>/conflicts/", agreement.PoolConflictsView.as_view(), name="pool_conflicts"),
    path("pools/<uuid:pk>/adjudicate/", agreement.PoolAdjudicateView.as_view(), name="pool_adjudicate"),
    path("pools/<uuid:pk>/model-judge/", agreement.PoolModelJudgeView.as_view(), name="pool_model_judge"),
    path("pools/<uuid:pk>/judge/", judging.JudgeView.as_view(), name="pool_judge"),
    path("pools/<uuid:pk>/bulk/", judging.BulkView.as_view(), name="pool_bulk"),
    *(
        path(f"pools/<uuid:pk>/{deed}/", pools.PoolActionView.as_view(deed=deed), name=f"pool_{deed}")
        for deed in pools.DEEDS
    ),
    path("comparisons/", comparisons.ComparisonListView.as_view(), name="comparison_list"),
    path("comparisons/new/", comparisons.ComparisonNewView.as_view(), name="comparison_new"),
    path("comparisons/<uuid:pk>/", comparison_page.ComparisonDetailView.as_view(), name="comparison_detail"),
    path("comparisons/<uuid:pk>/queries/", comparison_page.ComparisonQueriesView.as_view(), name="comparison_queries"),
    path(
        "comparisons/<uuid:pk>/queries/<int:position>/",
        comparison_page.ComparisonQueryView.as_view(),
        name="comparison_query",
    ),
    path(
        "comparisons/<uuid:pk>/settings/", comparison_page.ComparisonSettingsView.as_view(), name="comparison_settings"
    ),
    path("comparisons/<uuid:pk>/export/", reports.ComparisonReportView.as_view(), name="comparison_export"),
    path("comparisons/<uuid:pk>/notes/", comparison_page.ComparisonNotesView.as_view(), name="comparison_notes"),
    *(
        path(
            f"comparisons/<uuid:pk>/{deed}/",
            comparisons.ComparisonActionView.as_view(deed=deed),
            name=f"comparison_{deed}",
        )
        for deed in comparisons.DEEDS
    ),
    path("evaluations/", evaluations.EvaluationListView.as_view(), name="evaluation_list"),
    path("evaluations/leaderboard/", leaderboard.LeaderboardView.as_view(), name="leaderboard"),
    path("evaluations/<uuid:pk>/", evaluation_page.EvaluationDetailView.as_view(), name="evaluation_detail"),
    path("evaluations/<uuid:pk>/queries/", evaluation_page.EvaluationQueriesView.as_view(), name="evaluation_queries"),
    path(
        "evaluations/<uuid:pk>/queries/<int:position>/",
        evaluation_page.EvaluationQueryView.as_view(),
        name="evaluation_query",
    ),
    path(
        "evaluations/<uuid:pk>/coverage/", evaluation_page.EvaluationCoverageView.as_view(), name="evaluation_coverage"
    ),
    path("evaluations/<uuid:pk>/stages/", evaluation_page.EvaluationStagesView.as_view(), name="evaluation_stages"),
    path("evaluations/<uuid:pk>/export/", reports.EvaluationReportView.as_view(), name="evaluation_export"),
    path("evaluations/<uuid:pk>/delete/", evaluations.EvaluationDeleteView.as_view(), name="evaluation_delete"),
    path("try/", playground.TryView.as_view(), name="try"),
    path("try/column/", playground.TryColumnView.as_view(), name="try_column"),
    path("try/save/", playground.ExampleSaveView.as_view(), name="example_save"),
    path("try/<slug:short_id>/", playground.TryView.as_view(), name="example"),
    path("try/<slug:short_id>/delete/", playground.ExampleDeleteView.as_view(), name="example_delete"),
    path("score-requests/", score_requests.ScoreRequestListView.as_view(), name="score_request_list"),
    path(
        "score-requests/<uuid:pk>/explanation/<int:index>/",
        explanation.ItemExplanationView.as_view(),
        name="item_explanation",
    ),
    path("score-requests/<uuid:pk>/", score_requests.ScoreRequestDetailView.as_view(), name="score_request_detail"),
    path("models/", models.ModelListView.as_view(), name="model_list"),
    path("models/new/", model_new.ModelNewView.as_view(), name="model_new"),
    path("models/new/inspect/", model_new.InspectView.as_view(), name="model_inspect"),
    path("models/new/<uuid:pk>/", model_new.InspectionView.as_view(), name="model_inspection"),
    path("models/<slug:name>/", models.ModelDetailView.as_view(), name="model_detail"),
    path("models/<slug:name>/placements/", models.ModelPlacementsView.as_view(), name="model_placements"),
    path("models/<slug:name>/placing/", models.ModelPlacingView.as_view(), name="model_placing"),
    path("models/<slug:name>/settings/", models.ModelSettingsView.as_view(), name="model_settings"),
    path("models/<slug:name>/benchmark/", models.ModelBenchmarkView.as_view(), name="model_benchmark"),
    path("models/<slug:name>/alias/", models.AliasPointView.as_view(), name="alias_point"),
    path("models/<slug:name>/alias/<slug:alias>/delete/", models.AliasDeleteView.as_view(), name="alias_delete"),
    path("models/<slug:name>/thresholds/", thresholds.ThresholdsView.as_view(), name="model_thresholds"),
    path("threshold-advice/<uuid:pk>/delete/", thresholds.AdviceDeleteView.as_view(), name="threshold_advice_delete"),
    path("models/<slug:name>/<slug:action>/", models.ModelActionView.as_view(), name="model_action"),
    path("workers/", workers.WorkerListView.as_view(), name="worker_list"),
    path("workers/<uuid:pk>/", workers.WorkerDetailView.as_view(), name="worker_detail"),
    path("workers/<uuid:pk>/<slug:action>/", workers.WorkerActionView.as_view(), name="worker_action"),
    path("queue/", queue.QueueView.as_view(), name="queue"),
    path("usage/", usage.UsageView.as_view(), name="usage"),
    path("tokens/", tokens.TokenListView.as_view(), name="token_list"),
    path("tokens/new/", tokens.TokenNewView.as_view(), name="token_new"),
    path("tokens/<slug:public_id>/", tokens.TokenDetailView.as_view(), name="token_detail"),
    path("tokens/<slug:public_id>/revoke/", tokens.TokenRevokeView.as_view(), name="token_revoke"),
    path("webhooks/", webhooks.WebhookListView.as_view(), name="webhook_list"),
    path("webhooks/new/", webhooks.WebhookNewView.as_view(), name="webhook_new"),
    path("webhooks/<uuid:pk>/", webhooks.WebhookDetailView.as_view(), name="webhook_detail"),
    *(
        path(f"webhooks/<uuid:pk>/{deed}/", webhooks.WebhookActionView.as_view(deed=deed), name=f"webhook_{deed}")
        for deed in webhooks.DEEDS
    ),
    path("webhooks/<uuid:pk>/secret/", webhooks.WebhookSecretView.as_view(), name="webhook_secret"),
    path(
        "webhooks/<uuid:pk>/deliveries/<uuid:delivery>/replay/",
        webhooks.DeliveryReplayView.as_view(),
        name="delivery_replay",
    ),
    path("audit/", audit_log.AuditLogView.as_view(), name="audit_log"),
    path("people/", installation.PeopleView.as_view(), name="people"),
    path("people/<int:pk>/role/", installation.MemberRoleView.as_view(), name="member_role"),
    path("people/<int:pk>/remove/", installation.MemberRemoveView.as_view(), name="member_remove"),
    path("settings/", installation.SettingsView.as_view(), name="settings"),
    path("document-sets/<uuid:pk>/encodings/", encodings.EncodingsView.as_view(), name="set_encodings"),
    path("document-sets/<uuid:pk>/encode/", encodings.EncodingAskView.as_view(), name="encoding_ask"),
    *(
        path(
            f"encodings/<uuid:pk>/{deed}/",
            encodings.EncodingActionView.as_view(deed=deed),
            name=f"encoding_{deed}",
        )
        for deed in ("cancel", "delete")
    ),
    path("<set_kind:kind>/", sets.SetListView.as_view(), name="set_list"),
    path("<set_kind:kind>/upload/", uploads.UploadView.as_view(), name="upload"),
    path("<set_kind:kind>/upload/<uuid:pk>/", uploads.ImportView.as_view(), name="upload_import"),
    path("<set_kind:kind>/upload/<uuid:pk>/discard/", uploads.DiscardView.as_view(), name="upload_discard"),
    path("<set_kind:kind>/<uuid:pk>/", sets.SetDetailView.as_view(), name="set_detail"),
    path("<set_kind:kind>/<uuid:pk>/delete/", sets.SetDeleteView.as_view(), name="set_delete"),
    path("<set_kind:kind>/<uuid:pk>/delete-texts/", sets.TextsDeleteView.as_view(), name="texts_delete"),
]
