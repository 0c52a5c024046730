"""The Django project: settings, URLs, the Celery application and what every other app stands on.

Nothing is imported here: ``assay.client`` must load where there is no Django.
"""
