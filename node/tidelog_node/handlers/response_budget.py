"""A limit on the memory of all fetch responses in progress, including those that wait for a slow reader.

A response's bytes count twice from the time it is ready until the last of them has been sent: once serialized, once in
gRPC's buffers. The free part limits the records of the next response. Without a free part, or while others wait, a
request gets no records: it waits its turn, for its own maximum wait, and is then answered without records. A quarter is
reserved for followers, so that slow or stopped readers do not block replication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.config.topic import UNLIMITED

_COPIES: Final = 2
_FOLLOWERS_SHARE: Final = 4


class ResponseBudget:
    """The memory for the responses of a node. ``limit`` is in bytes."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self._limit = limit
        self._taken = 0
        self._consumers: dict[Callable[[], None], None] = {}
        self._followers: dict[Callable[[], None], None] = {}
        self._called: set[Callable[[], None]] = set()

    @property
    def taken(self) -> int:
        """The memory of the responses in progress, in bytes."""
        return self._taken

    def room(self, *, is_follower: bool) -> int:
        """Return the maximum number of record bytes of the next response; 0 or less means none."""
        limit = self._limit if is_follower else self._limit - self._limit // _FOLLOWERS_SHARE
        return (limit - self._taken) // _COPIES

    def room_for(self, wake: Callable[[], None], *, is_follower: bool) -> int:
        """Return :meth:`room` for the request of ``wake``, or 0 while others wait and it was not called."""
        waiting = self._followers if is_follower else self._consumers
        if waiting and wake not in self._called:
            return 0
        limit = self._limit if is_follower else self._limit - self._limit // _FOLLOWERS_SHARE
        return (limit - self._taken) // _COPIES

    def take(self, size: int) -> None:
        """Count a response of ``size`` bytes until :meth:`give_back`."""
        self._taken += _COPIES * size

    def give_back(self, size: int) -> None:
        """Stop counting a response, and let the longest waiting request check for room."""
        self._taken -= _COPIES * size
        self.pass_on()

    def wait(self, wake: Callable[[], None], *, is_follower: bool) -> None:
        """Call ``wake`` once when there may be room, after those that waited earlier."""
        self._called.discard(wake)
        (self._followers if is_follower else self._consumers)[wake] = None

    def leave(self, wake: Callable[[], None]) -> None:
        """Stop waiting and discard the call. :meth:`pass_on` follows."""
        self._called.discard(wake)
        self._consumers.pop(wake, None)
        self._followers.pop(wake, None)

    def pass_on(self) -> None:
        """Let the next requests check for room, if there is any. A woken request calls this after its check."""
        if not self._followers and not self._consumers:
            return
        for waiting, is_follower in ((self._followers, True), (self._consumers, False)):
            if waiting and self.room(is_follower=is_follower) > 0:
                wake = next(iter(waiting))
                del waiting[wake]
                self._called.add(wake)
                wake()


def wait_for_nothing() -> None:
    """Stand for a request that does not wait for room, in :meth:`ResponseBudget.room_for`."""
