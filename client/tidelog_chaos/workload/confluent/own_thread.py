"""A thread for calls into a library that may never end; a caller waits only until a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[Callable[[], Any], SimpleQueue[tuple[Any, Exception | None]]]
"""The function to call, and the queue for its result."""


class OwnThread:
    """Makes calls, one after another; after one that does not end it makes no more.

    The objects of such a call stay with the thread until the process ends. After a call that ended, neither the thread
    nor the traceback of an error keeps a reference, so that an object that ends with its last owner does.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """Return or raise the result of a call; in the thread itself, as in a callback, the call is made directly.

        Raises:
            TimeoutError: It has not ended after ``timeout_s``.
        """
        if threading.current_thread() is self._thread:
            return call()
        answers: SimpleQueue[tuple[T, Exception | None]] = SimpleQueue()
        self._calls.put((call, answers))
        del call
        try:
            result, error = answers.get(timeout=timeout_s)
        except Empty:
            raise TimeoutError(f"it has not ended in {timeout_s:g} s") from None
        try:
            if error is not None:
                raise error
            return result
        finally:
            del error

    def end(self) -> None:
        """Make no more calls."""
        self._calls.put(None)


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (asked := calls.get()) is not None:
        call, answers = asked
        del asked
        try:
            answers.put((call(), None))
        except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
            answers.put((None, error.with_traceback(None)))
        del call, answers
