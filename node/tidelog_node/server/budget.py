"""A bound on the bytes of requests that a node works on at the same time."""

from __future__ import annotations

import asyncio

from tidelog.errors import ErrorCode, error_for


class ByteBudget:
    """Takers are served in order; one that wants more than there is at all gets it when nobody else has anything.

    What waits is in memory too: ``waiting_limit`` bytes may, a quarter of ``limit`` by default, or one taker with more.
    """

    def __init__(self, limit: int, waiting_limit: int | None = None) -> None:
        self._limit = limit
        self._waiting_limit = limit // 4 if waiting_limit is None else waiting_limit
        self._taken = 0
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._waiting_bytes = 0

    @property
    def taken(self) -> int:
        """The bytes that are out."""
        return self._taken

    @property
    def waiting(self) -> int:
        """The bytes that wait."""
        return self._waiting_bytes

    async def take(self, size: int) -> None:
        """Wait until ``size`` bytes are free and take them; to be given back with :meth:`give_back`.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED: too many wait already. Nothing is taken.
        """
        if not self._waiting and self._fits(size):
            self._taken += size
            return
        if self._waiting and self._waiting_bytes + size > self._waiting_limit:
            raise error_for(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"a request of {size} bytes is refused: {self._taken} bytes of {self._limit} are under way, and"
                f" {self._waiting_bytes} of {self._waiting_limit} wait",
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = size
        self._waiting_bytes += size
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting_bytes -= self._waiting.pop(future)
                self._serve()
            else:
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Return what was taken and let others go on."""
        self._taken -= size
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            future, size = next(iter(self._waiting.items()))
            # Who was cancelled takes itself out when its task runs.
            if future.done() or not self._fits(size):
                return
            self._waiting_bytes -= self._waiting.pop(future)
            self._taken += size
            future.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._limit
