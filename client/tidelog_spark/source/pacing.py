"""The minimum size of micro-batches (``minOffsetsPerTrigger`` and ``maxTriggerDelay``). Pure: time is given."""

from __future__ import annotations

import re

_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)


class Pacing:
    """Decides whether a micro-batch waits for more records.

    It does while fewer than ``min_offsets`` are pending, until ``max_delay_ms`` after the batch before. The first batch
    of a run does not wait, as in Spark's Kafka source.
    """

    def __init__(self, min_offsets: int, max_delay_ms: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: float | None = None

    def must_wait(self, pending: int, now_ms: float) -> bool:
        """Return whether the batch waits; if not, the delay of the next one starts now."""
        is_late = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if not is_late and pending < self._min_offsets:
            return True
        self._last_ms = now_ms
        return False


def parse_duration(text: str) -> float:
    """Return a duration such as ``15m``, ``500ms`` or ``2h`` in milliseconds, the unit of a bare number.

    Raises:
        ValueError: it is not a duration.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS_MS:
        raise ValueError(f"must be a number with one of the units {', '.join(_UNITS_MS)}, such as 15m")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]
