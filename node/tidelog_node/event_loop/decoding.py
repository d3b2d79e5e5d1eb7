"""Decompression: large batches in one thread beside the event loop, small ones on the loop, which costs less."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidelog_foundation.records import OversizedRecordsError

T = TypeVar("T")
INLINE_BYTES = 256 * 1024
"""The most bytes to decompress on the event loop without a pause: at most a millisecond with any codec."""

MAX_INLINE_SIZE = 32 * 1024
"""The largest compressed batch to try on the loop; a codec takes 5 ms for one that consists of empty parts."""


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
