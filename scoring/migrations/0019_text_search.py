from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations
from django.db.models.functions import Left


class Migration(migrations.Migration):
    atomic = False  # an index that is built while rows are written cannot be part of a transaction

    dependencies = [("scoring", "0018_import_presets")]

    operations = [
        AddIndexConcurrently(
            model_name="document",
            index=GinIndex(
                SearchVector("title", Left("text", 100_000), config="simple"),
                name="document_words",
            ),
        ),
    ]
