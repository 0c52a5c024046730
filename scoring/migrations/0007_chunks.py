"""Chunks are leased, cut and ranked at scale: an index for each, and score arrays of which a part can be read."""

from django.db import migrations, models

# Score arrays do not compress, and parts of them are read: kept as they are, a slice costs only its own bytes.
SLICED = {
    "scoring_chunk": ("raw_scores", "scores", "document_positions"),
    "scoring_queryresult": ("positions", "raw_scores", "scores"),
}


def storage(kind: str) -> str:
    return "".join(
        f"ALTER TABLE {table} " + ", ".join(f"ALTER COLUMN {column} SET STORAGE {kind}" for column in columns) + ";"
        for table, columns in SLICED.items()
    )


class Migration(migrations.Migration):
    dependencies = [("scoring", "0006_job_control"), ("scoring", "0004_run_sets")]

    operations = [
        migrations.RemoveIndex(model_name="chunk", name="chunk_expiry"),
        migrations.RemoveIndex(model_name="chunk", name="chunk_pending"),
        migrations.AlterField(
            model_name="chunk",
            name="attempts",
            field=models.PositiveSmallIntegerField(
                default=0, help_text="crashes and item errors of its pairs, also before it was cut"
            ),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(
                condition=models.Q(("state", "pending")), fields=["stage", "attempts", "index"], name="chunk_pending"
            ),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(condition=models.Q(("state", "leased")), fields=["stage"], name="chunk_leased"),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(
                condition=models.Q(("state", "done")), fields=["stage", "-finished_at"], name="chunk_done"
            ),
        ),
        migrations.AddIndex(
            model_name="chunk",
            index=models.Index(condition=models.Q(("attempts__gte", 2)), fields=["stage"], name="chunk_suspect"),
        ),
        migrations.RunSQL(storage("EXTERNAL"), storage("EXTENDED")),
    ]
