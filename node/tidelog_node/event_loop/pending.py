"""The future answer of a waiting request.

Unlike an asyncio future, a Pending calls its callback in the same step in which it settles. A future takes one more
round of the event loop per link in a chain. An acknowledgement thus leaves with the fetch that completes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")
_WAITS, _IS_SETTLED, _IS_CANCELLED = range(3)


class Pending(Generic[T]):
    """An awaitable that settles once, with a value or an error, or is cancelled; it has one callback.

    ``abandon`` runs on cancellation, before the callback, because the value is no longer wanted. The Pending then drops
    both references: they refer back to it, and every request has a Pending.
    """

    __slots__ = ("_abandon", "_call", "_error", "_state", "_value")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self._abandon = abandon
        self._call: Callable[[Pending[T]], None] | None = None
        self._state = _WAITS
        self._value: T | None = None
        self._error: BaseException | None = None

    def __await__(self) -> Generator[asyncio.Future[T], None, T]:
        return self.as_future().__await__()

    @property
    def is_settled(self) -> bool:
        """True if it has a value or an error, or was cancelled."""
        return self._state != _WAITS

    @property
    def is_cancelled(self) -> bool:
        """True if it was cancelled before it settled."""
        return self._state == _IS_CANCELLED

    @property
    def error(self) -> BaseException | None:
        """The error that it failed with; None for a value, or before it settles."""
        return self._error

    def result(self) -> T:
        """Return the value, or raise the error.

        Raises:
            asyncio.CancelledError: The Pending was cancelled.
        """
        if self._error is not None:
            raise self._error
        if self._state == _IS_CANCELLED:
            raise asyncio.CancelledError
        assert self._state == _IS_SETTLED, "not settled"
        # T may have None among its values.
        return self._value  # type: ignore[return-value]

    def then(self, call: Callable[[Pending[T]], None]) -> None:
        """Set the callback for settlement or cancellation; run it at once if either has happened."""
        assert self._call is None, "a callback is already set"
        self._call = call
        if self._state != _WAITS:
            self._tell()

    def settle(self, value: T) -> None:
        """Settle it with a value; it must not have settled before."""
        assert self._state == _WAITS, "already settled"
        self._state, self._value = _IS_SETTLED, value
        self._abandon = None
        self._tell()

    def fail(self, error: BaseException) -> None:
        """Settle it with an error; it must not have settled before."""
        assert self._state == _WAITS, "already settled"
        self._state, self._error = _IS_SETTLED, error
        self._abandon = None
        self._tell()

    def cancel(self) -> bool:
        """Cancel it; returns False when it had settled before."""
        if self._state != _WAITS:
            return False
        self._state = _IS_CANCELLED
        abandon, self._abandon = self._abandon, None
        if abandon is not None:
            abandon()
        self._tell()
        return True

    def as_future(self) -> asyncio.Future[T]:
        """Return a future with the same outcome; its cancellation cancels the Pending."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: self.cancel() if done.cancelled() else None)
        self.then(lambda _: None if future.done() else self._pass_on(future))
        return future

    def _pass_on(self, future: asyncio.Future[T]) -> None:
        if self._state == _IS_CANCELLED:
            future.cancel()
        elif self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self.result())

    def _tell(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        try:
            call(self)
        except Exception as error:  # noqa: BLE001  # the callback's error must not reach the code that settles
            context = {"message": "The callback of a pending answer failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
