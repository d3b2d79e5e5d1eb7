"""A limit on the bytes of requests that a process handles at a time."""

from __future__ import annotations

import asyncio

from tidelog_foundation.errors import ErrorCode, error_for


class ByteBudget:
    """A budget that serves callers in order. A request above the whole limit is served alone.

    Requests that wait in :meth:`take` use memory too: up to ``waiting_limit`` bytes may wait, a quarter of ``limit`` by
    default, or one larger request. Requests that wait after :meth:`reserve` are not in memory yet.
    """

    def __init__(self, limit: int, waiting_limit: int | None = None) -> None:
        self._limit = limit
        self._waiting_limit = limit // 4 if waiting_limit is None else waiting_limit
        self.taken = 0
        """The bytes in use."""
        self._waiting: dict[asyncio.Future[None], tuple[int, bool]] = {}
        self.waiting = 0
        """The waiting bytes that are in memory."""

    @property
    def is_contended(self) -> bool:
        """True if a request waits."""
        return bool(self._waiting)

    def has_room(self, size: int) -> bool:
        """Return whether ``size`` bytes can be taken without a wait."""
        return not self._waiting and self._fits(size)

    async def take(self, size: int) -> None:
        """Wait until ``size`` bytes are free and take them, until :meth:`give_back`.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED: too many bytes wait already. Nothing is taken.
        """
        if self._waiting and self.waiting + size > self._waiting_limit:
            raise error_for(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"a request of {size} bytes is refused: {self.taken} bytes of {self._limit} are under way, and"
                f" {self.waiting} of {self._waiting_limit} wait",
            )
        place = self._queue(size, is_in_memory=True)
        if place is None:
            return
        try:
            await place
        except asyncio.CancelledError:
            self.withdraw(place, size)
            raise

    def reserve(self, size: int) -> asyncio.Future[None] | None:
        """Take ``size`` bytes for data yet to be received and return None, or return a future that completes with them.

        A caller that no longer wants them passes the future to :meth:`withdraw`.
        """
        return self._queue(size, is_in_memory=False)

    def withdraw(self, place: asyncio.Future[None], size: int) -> None:
        """Stop waiting for ``size`` bytes, or return them if ``place`` has them already."""
        if place not in self._waiting:
            self.give_back(size)
            return
        self._leave(place)
        place.cancel()
        self._serve()

    def give_back(self, size: int) -> None:
        """Return bytes to the budget and serve waiting requests."""
        self.taken -= size
        self._serve()

    def _queue(self, size: int, *, is_in_memory: bool) -> asyncio.Future[None] | None:
        if self.has_room(size):
            self.taken += size
            return None
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = (size, is_in_memory)
        self.waiting += size if is_in_memory else 0
        return place

    def _serve(self) -> None:
        while self._waiting:
            place, (size, _) = next(iter(self._waiting.items()))
            # A cancelled request removes itself when its task runs.
            if place.done() or not self._fits(size):
                return
            self._leave(place)
            self.taken += size
            place.set_result(None)

    def _leave(self, place: asyncio.Future[None]) -> None:
        size, is_in_memory = self._waiting.pop(place)
        self.waiting -= size if is_in_memory else 0

    def _fits(self, size: int) -> bool:
        return self.taken == 0 or self.taken + size <= self._limit
