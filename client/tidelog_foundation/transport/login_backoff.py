"""The wait after refused logins, which a client does not repeat as often as connections. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FIRST_S: Final = 0.1
_JITTER: Final = 0.2


class LoginBackoff:
    """The wait after refused logins on one channel: 0.1 s, doubled with each refusal up to a maximum, with 20 % jitter.

    librdkafka waits as long between connections (reconnect.backoff.ms).
    """

    def __init__(self, max_s: float, random: Callable[[], float]) -> None:
        """``random`` returns a number from 0 to 1."""
        self._max_s = max_s
        self._random = random
        self._wait_s = _FIRST_S
        self._until_s: float | None = None

    def remaining_s(self, now_s: float) -> float:
        """Return the time until the next login may begin."""
        return 0.0 if self._until_s is None else max(self._until_s - now_s, 0.0)

    def refused(self, now_s: float) -> None:
        """Record a refused login."""
        wait_s = min(self._wait_s, self._max_s)
        self._until_s = now_s + wait_s * (1 + _JITTER * (2 * self._random() - 1))
        self._wait_s = min(2 * self._wait_s, self._max_s)

    def reset(self) -> None:
        """Record that a login succeeded, or that the credentials are others."""
        self._wait_s, self._until_s = _FIRST_S, None
