"""The pending requests of the engine's callers, by id: reads and operators' requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog_foundation.errors import TidelogError, error_for


class PendingRequests:
    """The open requests; each is open during its :meth:`opened` block. Answers to other requests are dropped."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._awaiting_commit: dict[int, tuple[int, int]] = {}

    @contextmanager
    def opened(self) -> Iterator[tuple[int, asyncio.Future[int]]]:
        """Yield the id of a new request and the future of its answer."""
        request_id = next(self._ids)
        future = self._futures[request_id] = asyncio.get_running_loop().create_future()
        try:
            yield request_id, future
        finally:
            del self._futures[request_id]
            self._awaiting_commit.pop(request_id, None)

    def answer(self, request_id: int, value: int) -> None:
        """Complete the request."""
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_result(value)

    def refuse(self, request_id: int, error: TidelogError) -> None:
        """Fail the request with an error."""
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_exception(error)

    def refuse_all(self, error: TidelogError) -> None:
        """Refuse all open requests."""
        for request_id in self._futures:
            self.refuse(request_id, error_for(error.code, error.message))

    def await_commit(self, request_id: int, index: int, term: int) -> None:
        """Answer the request when the entry at ``index`` is committed with ``term``."""
        self._awaiting_commit[request_id] = index, term

    def refuse_after(self, commit_index: int, lost: Callable[[str], TidelogError]) -> None:
        """Refuse those whose entry was not committed when the leadership ended: it may still commit, or never."""
        for request_id, (index, _) in self._awaiting_commit.items():
            if index > commit_index:
                self.refuse(
                    request_id, lost(f" any more, the change of the voters at offset {index} may still be made")
                )

    def committed(self, index: int, term: int, lost: TidelogError) -> None:
        """Record the committed entry of an index; requests that wait for another entry there get ``lost``."""
        for request_id, (wanted_index, wanted_term) in list(self._awaiting_commit.items()):
            if (wanted_index, wanted_term) == (index, term):
                self.answer(request_id, index)
            elif wanted_index <= index:
                self.refuse(request_id, error_for(lost.code, lost.message))
