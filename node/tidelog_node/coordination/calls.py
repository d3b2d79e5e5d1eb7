"""The calls that wait for the answers of one shard, and the limit on those of all shards together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

ResponseT = TypeVar("ResponseT")

_CALL_BYTES = 4 * 1024
"""The memory of a call in addition to its request: messages, tasks, futures."""


class CallBounds:
    """Limits on the number of waiting calls of a node and the bytes of their requests.

    Calls beyond them are refused.
    """

    def __init__(self, max_calls: int, max_bytes: int) -> None:
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self.calls = 0
        self.bytes = 0

    @contextlib.contextmanager
    def taking(self, request_bytes: int) -> Iterator[None]:
        """Count a call while it is in progress.

        Raises:
            TidelogError: COORDINATOR_NOT_AVAILABLE: there are too many calls. Clients retry after a short time.
        """
        size = _CALL_BYTES + request_bytes
        if self.calls and (self.calls >= self._max_calls or self.bytes + size > self._max_bytes):
            text = f"{self.calls} calls of {self.bytes} bytes wait for this coordinator already, one of {size}"
            limits = f"{self._max_calls} calls and {self._max_bytes} bytes may"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{text} bytes is refused: {limits}")
        self.calls += 1
        self.bytes += size
        try:
            yield
        finally:
            self.calls -= 1
            self.bytes -= size


class WaitingCalls(Generic[ResponseT]):
    """The calls of one shard by id, each with the future of its answer."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[ResponseT]] = {}
        self._ids = itertools.count()

    def add(self) -> tuple[int, asyncio.Future[ResponseT]]:
        """Return a new id and the future of its answer."""
        call_id = next(self._ids)
        future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._futures[call_id] = future
        return call_id, future

    def answer(self, call_id: int, response: ResponseT) -> None:
        """Answer a call if somebody still waits for it."""
        future = self._futures.pop(call_id, None)
        if future is not None and not future.done():
            future.set_result(response)

    def abandon(self, call_id: int) -> bool:
        """Forget a call, and return whether it was unanswered."""
        return self._futures.pop(call_id, None) is not None

    def fail_all(self, error: TidelogError) -> None:
        """Answer all calls with an error."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(error)
