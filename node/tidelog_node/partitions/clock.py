"""The two clocks of a node: one that never goes back for lags and deadlines, one that users see in timestamps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the shells read the time from; tests bring their own."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
