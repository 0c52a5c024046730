"""One module per way of running: ``dev`` (one machine), ``test`` and ``production``; ``env`` reads the environment."""
