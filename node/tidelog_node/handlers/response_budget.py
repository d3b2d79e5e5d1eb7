"""A bound on the memory of all fetch responses of a node that are under way, those that wait for a slow reader too.

A response's bytes count twice from when it is ready until the last of them has left: once serialized, once in gRPC's
buffers. What is free bounds the records of the next one. With nothing free, or while others wait, a request gets no
records: it waits its turn, as long as it wants to wait for records at all, and is answered without. A quarter is kept
for followers: readers that are slow, or stopped, do not hold up replication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.config.topic import UNLIMITED

_COPIES: Final = 2
_FOLLOWERS_SHARE: Final = 4


class ResponseBudget:
    """One per node, on its event loop. ``limit`` is in bytes of memory."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self._limit = limit
        self._taken = 0
        self._consumers: dict[Callable[[], None], None] = {}
        self._followers: dict[Callable[[], None], None] = {}
        self._called: set[Callable[[], None]] = set()

    @property
    def taken(self) -> int:
        """The memory of the responses under way, in bytes."""
        return self._taken

    def room(self, *, is_follower: bool) -> int:
        """Return how many bytes of records the next response may have; 0 or less: none."""
        limit = self._limit if is_follower else self._limit - self._limit // _FOLLOWERS_SHARE
        return (limit - self._taken) // _COPIES

    def room_for(self, wake: Callable[[], None], *, is_follower: bool) -> int:
        """Return :meth:`room` for the request that ``wake`` belongs to: 0 while others wait and it was not called."""
        waiting = self._followers if is_follower else self._consumers
        return 0 if waiting and wake not in self._called else self.room(is_follower=is_follower)

    def take(self, size: int) -> None:
        """Count a response of ``size`` bytes; :meth:`give_back` them when it has left."""
        self._taken += _COPIES * size

    def give_back(self, size: int) -> None:
        """Count a response no more, and let the request that has waited longest look for room."""
        self._taken -= _COPIES * size
        self.pass_on()

    def wait(self, wake: Callable[[], None], *, is_follower: bool) -> None:
        """Have ``wake`` called once when there may be room, after those that waited before."""
        self._called.discard(wake)
        (self._followers if is_follower else self._consumers)[wake] = None

    def leave(self, wake: Callable[[], None]) -> None:
        """Wait no more, and be called no more; :meth:`pass_on` follows."""
        self._called.discard(wake)
        self._consumers.pop(wake, None)
        self._followers.pop(wake, None)

    def pass_on(self) -> None:
        """Let the next requests look for room, if there is any; whoever was woken calls this when it has looked."""
        for waiting, is_follower in ((self._followers, True), (self._consumers, False)):
            if waiting and self.room(is_follower=is_follower) > 0:
                wake = next(iter(waiting))
                del waiting[wake]
                self._called.add(wake)
                wake()
