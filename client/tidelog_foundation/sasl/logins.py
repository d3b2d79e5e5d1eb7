"""The logins in progress on a listener, without I/O: their number is limited, and no host can use up the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidelog_foundation.dataclass import dataclass


@dataclass(slots=True, eq=False)
class Login:
    """A login in progress. ``abort`` ends it from outside."""

    host: str
    abort: Callable[[], None]


class Logins:
    """The logins in progress. When there are too many, the host with the most of them loses its oldest one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._all: dict[Login, None] = {}
        self._per_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, login: Login) -> bool:
        """Add a login, or return False if its own host has the most of too many."""
        if len(self._all) >= self._limit:
            busiest, count = self._per_host.most_common(1)[0]
            if self._per_host[login.host] >= count:
                return False
            oldest = next(each for each in self._all if each.host == busiest)
            self.end(oldest)
            oldest.abort()
        self._all[login] = None
        self._per_host[login.host] += 1
        return True

    def end(self, login: Login) -> None:
        """Remove a login. Does nothing if it was removed before."""
        if login in self._all:
            del self._all[login]
            self._per_host[login.host] -= 1
            if not self._per_host[login.host]:
                del self._per_host[login.host]
