"""The domain: models, document sets, jobs, results. Imports neither torch nor ``workers``."""
