"""What callers of the engine wait for: reads and operators' requests, by id."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog_foundation.errors import TidelogError, error_for


class PendingRequests:
    """Each is open from its :meth:`opened` block's begin to the end; an answer to one that is not open is dropped."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._awaiting_commit: dict[int, tuple[int, int]] = {}

    @contextmanager
    def opened(self) -> Iterator[tuple[int, asyncio.Future[int]]]:
        """Yield the id of a new request and what its answer comes to."""
        request_id = next(self._ids)
        future = self._futures[request_id] = asyncio.get_running_loop().create_future()
        try:
            yield request_id, future
        finally:
            del self._futures[request_id]
            self._awaiting_commit.pop(request_id, None)

    def answer(self, request_id: int, value: int) -> None:
        """Let the caller go on."""
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_result(value)

    def refuse(self, request_id: int, error: TidelogError) -> None:
        """Let the caller's wait end with an error."""
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_exception(error)

    def refuse_all(self, error: TidelogError) -> None:
        """Refuse all that are open."""
        for request_id in self._futures:
            self.refuse(request_id, error_for(error.code, error.message))

    def await_commit(self, request_id: int, index: int, term: int) -> None:
        """Answer the request when the entry at ``index`` is committed with ``term``."""
        self._awaiting_commit[request_id] = index, term

    def refuse_after(self, commit_index: int, lost: Callable[[str], TidelogError]) -> None:
        """Refuse those whose entry was not committed when the leadership ended: it may be committed still, or never."""
        for request_id, (index, _) in self._awaiting_commit.items():
            if index > commit_index:
                self.refuse(
                    request_id, lost(f" any more, the change of the voters at offset {index} may still be made")
                )

    def committed(self, index: int, term: int, lost: TidelogError) -> None:
        """Note which entry was committed at an index; requests that wait for another one there get ``lost``."""
        for request_id, (wanted_index, wanted_term) in list(self._awaiting_commit.items()):
            if (wanted_index, wanted_term) == (index, term):
                self.answer(request_id, index)
            elif wanted_index <= index:
                self.refuse(request_id, error_for(lost.code, lost.message))
