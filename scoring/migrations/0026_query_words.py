from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Left


class Migration(migrations.Migration):
    atomic = False  # an index that is built while rows are written cannot be part of a transaction

    dependencies = [("scoring", "0025_model_aliases")]

    operations = [
        AddIndexConcurrently(
            model_name="query",
            index=GinIndex(
                SearchVector(
                    Left("text", 100_000), Left(KeyTextTransform("narrative", "metadata"), 100_000), config="simple"
                ),
                name="query_words",
            ),
        ),
    ]
