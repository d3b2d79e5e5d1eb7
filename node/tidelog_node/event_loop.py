"""Shared services of a node's event loop: its clocks, the decompression thread and pending answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from tidelog_foundation.records import OversizedRecordsError

T = TypeVar("T")
INLINE_BYTES = 256 * 1024
"""The most bytes to decompress on the event loop without a pause: at most a millisecond with any codec."""
MAX_INLINE_SIZE = 32 * 1024
"""The largest compressed batch to try on the loop; a codec takes 5 ms for one that consists of empty parts."""
_WAITS, _IS_SETTLED, _IS_CANCELLED = range(3)


class Clock(Protocol):
    """The clocks that the shells read; tests supply their own."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment; the value never decreases."""

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment; the value never decreases."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class DecodingThread:
    """The node's thread for large batches, used from the event loop.

    The thread decodes one batch at a time, which bounds the memory for decompression to one batch. A request submits
    its next batch after the result of the last, so requests take turns. Codecs and iteration over records release the
    GIL.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decoding")

    async def run(self, job: Callable[[int | None], T], compressed_size: int) -> T:
        """Return the result of a job; run it on the loop if the batch is small enough, else in the thread.

        The job's argument is the number of bytes that it may decompress; None sets no limit beyond the job's own.
        ``compressed_size`` is the size of the compressed batch, 0 for an uncompressed one. The job's errors propagate.
        """
        if compressed_size <= MAX_INLINE_SIZE:
            with contextlib.suppress(OversizedRecordsError):
                return job(INLINE_BYTES)
        return await self.run_in_thread(job)

    async def run_in_thread(self, job: Callable[[int | None], T]) -> T:
        """Return the result of a job with no limit beyond its own. The job's errors propagate."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, job, None)

    def close(self) -> None:
        """End the thread after its current job and cancel the waiting jobs."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Pending(Generic[T]):
    """The future answer of a waiting request: it settles once, with a value or an error, or is cancelled.

    Unlike an asyncio future, it has one callback and calls it in the same step in which it settles. A future takes one
    more round of the event loop per link in a chain. An acknowledgement thus leaves with the fetch that completes it.

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
        """Settle the answer with a value. It must not have settled before."""
        assert self._state == _WAITS, "already settled"
        self._state, self._value = _IS_SETTLED, value
        self._abandon = None
        self._tell()

    def fail(self, error: BaseException) -> None:
        """Settle the answer with an error. It must not have settled before."""
        assert self._state == _WAITS, "already settled"
        self._state, self._error = _IS_SETTLED, error
        self._abandon = None
        self._tell()

    def cancel(self) -> bool:
        """Cancel the answer. Return False if it had settled before."""
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
