"""Makes the files of exports beside the reconciler's rounds, one at a time."""

from __future__ import annotations

from typing import Final

from scoring.services.exports import export_claim, export_make
from workers.loop import Loop

LOOK_SECONDS: Final = 1.0


class ExportMaker:
    """Any number may run: what one has claimed no other makes."""

    def __init__(self) -> None:
        self._loop = Loop("exports", self.step, seconds=LOOK_SECONDS)
        self.start = self._loop.start
        self.stop = self._loop.stop

    def step(self) -> bool:
        """True: there may be more."""
        export = export_claim()
        if export is None:
            return False
        export_make(export, stopped=lambda: self._loop.stopping)
        return True
