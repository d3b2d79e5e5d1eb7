"""The sources of a process's metrics, and their collection from another thread."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.metrics import Family, Source
from tidelog_foundation.monitoring.loop_access import LoopAccess

_COLLECT_TIMEOUT_S: Final = 9.0
"""The time for the collection of metrics, below Prometheus' default timeout."""


@dataclass(slots=True)
class Sources:
    """The sources of a process. Those that are ``blocking`` are read in a thread, for example of the disk's state."""

    on_loop: list[Source] = field(default_factory=list)
    blocking: list[Source] = field(default_factory=list)

    def collect(self, loop: LoopAccess) -> list[Family]:
        """Read all sources. Call it in a thread.

        Raises:
            LoopBusyError: The loop has not answered in time, or has ended.
        """
        families = loop.collect(self.on_loop, _COLLECT_TIMEOUT_S)
        families += (family for source in self.blocking for family in source() if family is not None)
        return families
