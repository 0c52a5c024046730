"""The console command ``assay``: the client's calls at the shell. It needs ``typer`` beside ``assay.client``."""
