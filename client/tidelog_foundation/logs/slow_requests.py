"""The log of slow requests, each with the time of its phases.

The limit is on the time that the server takes. The wait that a client asks for, as of a fetch for records, does not
count; a wait for replicas does.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.logs.request_id import safe_request_id

logger = logging.getLogger(__name__)
_MILLISECOND_NS: Final = 1_000_000


class SlowRequests:
    """Writes a line for each request that takes longer than ``threshold_ms``; none for 0 or less."""

    def __init__(self, threshold_ms: int) -> None:
        self.threshold_ns = threshold_ms * _MILLISECOND_NS if threshold_ms > 0 else sys.maxsize
        self._log = LogLimit(logger, time.monotonic)

    def report(self, api: str, origin: str, request_id: str, total_ns: int, phases_ns: Mapping[str, int]) -> None:
        """Write the line of a request. ``origin`` is the client's address; ``phases_ns`` are in the order of time."""
        phases = ", ".join(f"{phase} {time_ns / _MILLISECOND_NS:.1f}" for phase, time_ns in phases_ns.items())
        self._log.warning(
            "Slow request: %s %s from %s took %.1f ms: %s",
            api,
            safe_request_id(request_id) or "-",
            origin,
            total_ns / _MILLISECOND_NS,
            phases,
        )


NO_SLOW_REQUESTS: Final = SlowRequests(0)
"""Writes nothing."""
