"""The two clocks of a node: a monotonic one for lags and deadlines, and a wall clock for timestamps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The clocks that the shells read; tests supply their own."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment; the value never decreases."""

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment; the value never decreases."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000
