"""Jobs get stages: what a job knew of its one model moves to its one stage."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

DONE = ("completed", "completed_with_errors", "cancelled", "failed")


def one_stage_each(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    job_table, stage_table = apps.get_model("scoring", "Job"), apps.get_model("scoring", "Stage")
    for job in job_table.objects.iterator():
        stage = stage_table.objects.create(
            job=job,
            index=0,
            model=job.model,
            model_revision=job.model_revision,
            settings=job.settings,
            top_k=job.top_k,
            state="done" if job.state in DONE else "running",
            pair_count=job.pair_count,
            query_block=job.query_block,
            document_block=job.document_block,
            statistics=job.statistics,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )
        apps.get_model("scoring", "Chunk").objects.filter(job=job).update(stage=stage)
        apps.get_model("scoring", "QueryResult").objects.filter(job=job).update(stage=stage)
    job_table.objects.filter(state__in=("cancelling", "cancelled")).update(end_reason="cancelled")


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("scoring", "0004_run_sets")]
    operations = [
        # Deferred checks of rows written here would stand in the way of the changes of the same tables that follow.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.RemoveConstraint(
            model_name='chunk',
            name='chunk_index',
        ),
        migrations.RemoveConstraint(
            model_name='job',
            name='job_state',
        ),
        migrations.RemoveConstraint(
            model_name='job',
            name='job_pairs_are_queries_x_documents',
        ),
        migrations.RemoveConstraint(
            model_name='queryresult',
            name='query_result_once',
        ),
        migrations.RemoveIndex(
            model_name='chunk',
            name='chunk_pending',
        ),
        migrations.CreateModel(
            name='Stage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('index', models.PositiveSmallIntegerField(help_text='counts from 0 in the order of the request')),
                ('method', models.CharField(choices=[('model', 'scored by a model'), ('bm25', 'retrieved by BM25'), ('run', 'taken from an uploaded run')], default='model', max_length=16)),
                ('model_revision', models.CharField(blank=True, max_length=64)),
                ('settings', models.JSONField(default=dict)),
                ('top_k', models.PositiveIntegerField(help_text='documents kept per query; empty: all', null=True)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Running'), ('done', 'Done'), ('skipped', 'Skipped')], default='waiting', max_length=16)),
                ('pair_count', models.PositiveBigIntegerField(help_text='pairs to score; an upper bound until the source is ranked')),
                ('query_block', models.PositiveIntegerField(help_text='queries per chunk')),
                ('document_block', models.PositiveIntegerField(help_text='candidates per chunk')),
                ('statistics', models.JSONField(default=dict, help_text='written when the stage ends: counts by status, seconds, …')),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ('job', 'index'),
            },
        ),
        migrations.AddField(
            model_name='stage',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='stages', to='scoring.job'),
        ),
        migrations.AddField(
            model_name='stage',
            name='model',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='stages', to='scoring.scoringmodel'),
        ),
        migrations.AddField(
            model_name='stage',
            name='source',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='branches', to='scoring.stage'),
        ),
        migrations.AddField(
            model_name='chunk',
            name='stage',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='scoring.stage'),
        ),
        migrations.AddField(
            model_name='queryresult',
            name='stage',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='results', to='scoring.stage'),
        ),
        migrations.AddField(
            model_name='chunk',
            name='document_positions',
            field=models.BinaryField(default=b''),
        ),
        migrations.AddField(
            model_name='job',
            name='attempt',
            field=models.PositiveSmallIntegerField(default=1, help_text='grows with every retry of what is unfinished'),
        ),
        migrations.AddField(
            model_name='job',
            name='cloned_from',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='clones', to='scoring.job'),
        ),
        migrations.AddField(
            model_name='job',
            name='complete_within',
            field=models.PositiveIntegerField(help_text='seconds from being queued until it expires', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='end_reason',
            field=models.CharField(blank=True, choices=[('cancelled', 'Cancelled'), ('expired', 'not done in time'), ('too_many_errors', 'too many errors')], max_length=16),
        ),
        migrations.AddField(
            model_name='job',
            name='expires_at',
            field=models.DateTimeField(help_text='what is not scored by then is left out', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='max_error_rate',
            field=models.FloatField(help_text='share of failed pairs beyond which the job is stopped', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='start_at',
            field=models.DateTimeField(help_text='not queued before this', null=True),
        ),
        migrations.RunPython(one_stage_each, migrations.RunPython.noop),
        migrations.RemoveField(
            model_name='job',
            name='document_block',
        ),
        migrations.RemoveField(
            model_name='job',
            name='model',
        ),
        migrations.RemoveField(
            model_name='job',
            name='model_revision',
        ),
        migrations.RemoveField(
            model_name='job',
            name='query_block',
        ),
        migrations.RemoveField(
            model_name='job',
            name='settings',
        ),
        migrations.RemoveField(
            model_name='job',
            name='top_k',
        ),
        migrations.RemoveField(
            model_name='queryresult',
            name='job',
        ),
        migrations.AlterField(
            model_name='chunk',
            name='stage',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='scoring.stage'),
        ),
        migrations.AlterField(
            model_name='queryresult',
            name='stage',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='scoring.stage'),
        ),
        migrations.AlterModelOptions(
            name='chunk',
            options={'ordering': ('stage', 'index')},
        ),
        migrations.AlterModelOptions(
            name='queryresult',
            options={'ordering': ('stage', 'query_position')},
        ),
        migrations.AlterField(
            model_name='job',
            name='pair_count',
            field=models.PositiveBigIntegerField(help_text='over all stages; an upper bound until they are open'),
        ),
        migrations.AlterField(
            model_name='job',
            name='state',
            field=models.CharField(choices=[('scheduled', 'Scheduled'), ('queued', 'Queued'), ('running', 'Running'), ('paused', 'Paused'), ('cancelling', 'stopping'), ('finalizing', 'Finalizing'), ('completed', 'Completed'), ('completed_with_errors', 'completed with errors'), ('cancelled', 'Cancelled'), ('expired', 'Expired'), ('failed', 'Failed')], default='queued', max_length=24),
        ),
        migrations.AlterField(
            model_name='job',
            name='statistics',
            field=models.JSONField(default=dict, help_text='written when the job ends: over all stages'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['scheduled', 'queued', 'running', 'paused', 'cancelling', 'finalizing', 'completed', 'completed_with_errors', 'cancelled', 'expired', 'failed'])), name='job_state'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('end_reason__in', ['', 'cancelled', 'expired', 'too_many_errors'])), name='job_end_reason'),
        ),
        migrations.AddIndex(
            model_name='chunk',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['job', 'index'], name='chunk_pending'),
        ),
        migrations.AddConstraint(
            model_name='chunk',
            constraint=models.UniqueConstraint(fields=('stage', 'query_start', 'document_start'), name='chunk_place'),
        ),
        migrations.AddConstraint(
            model_name='queryresult',
            constraint=models.UniqueConstraint(fields=('stage', 'query_position'), name='query_result_once'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'running', 'done', 'skipped'])), name='stage_state'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(('method__in', ['model', 'bm25', 'run'])), name='stage_method'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.UniqueConstraint(fields=('job', 'index'), name='stage_index'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('method', 'model'), ('model__isnull', False)), models.Q(models.Q(('method', 'model'), _negated=True), ('model__isnull', True), ('source__isnull', True)), _connector='OR'), name='stage_model_iff_scored_by_one'),
        ),
    ]
