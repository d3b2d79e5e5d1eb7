"""The I/O limit shared by all cleaners of a node (``log.cleaner.io.max.bytes.per.second``)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable


class Throttle:
    """A rate limit shared by the cleaners' threads. ``clock`` returns monotonic seconds, ``sleep`` takes seconds.

    Each :meth:`take` waits until the rate has paid for all earlier ones, so over any longer span the rate holds
    exactly, for all threads together.
    """

    def __init__(self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        """Set the rate; ``math.inf`` means no limit.

        Raises:
            ValueError: the rate is not positive.
        """
        if not bytes_per_second > 0:
            raise ValueError(f"{bytes_per_second} bytes per second")
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = -math.inf
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until ``size`` bytes may be read or written."""
        if math.isinf(self._bytes_per_second):
            return
        with self._lock:
            now = self._clock()
            begin = max(self._free_at, now)
            self._free_at = begin + size / self._bytes_per_second
        if begin > now:
            self._sleep(begin - now)
