"""The wait after refused logins, which a client does not repeat as often as connections. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.backoff import Backoff

_FIRST_MS: Final = 100


class LoginBackoff:
    """The wait after refused logins on one channel: 0.1 s, doubled with each refusal up to a maximum, with 20 % jitter.

    librdkafka waits as long between connections (reconnect.backoff.ms).
    """

    def __init__(self, max_s: float, random: Callable[[], float]) -> None:
        """``random`` returns a number from 0 to 1."""
        self._backoff = Backoff(_FIRST_MS, max_s * 1000, random)
        self._refusals = 0
        self._until_s: float | None = None

    def remaining_s(self, now_s: float) -> float:
        """Return the time until the next login may begin."""
        return 0.0 if self._until_s is None else max(self._until_s - now_s, 0.0)

    def refused(self, now_s: float) -> None:
        """Record a refused login."""
        self._refusals += 1
        self._until_s = now_s + self._backoff.wait_ms(self._refusals) / 1000

    def reset(self) -> None:
        """Record that a login succeeded, or that the credentials are others."""
        self._refusals, self._until_s = 0, None
