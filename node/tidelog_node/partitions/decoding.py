"""Large batches are decompressed in one thread beside the event loop; small ones on the loop, which costs less."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidelog_foundation.records import OversizedRecordsError

T = TypeVar("T")
INLINE_BYTES = 256 * 1024
"""What may be decompressed on the event loop without a pause: at most a millisecond with any codec."""

MAX_INLINE_SIZE = 32 * 1024
"""The largest compressed batch that is tried on the loop: of nothing but empty parts, a codec takes 5 ms for it."""


class DecodingThread:
    """One per node, on its event loop.

    It does one batch at a time, so the memory for decompression is that of one. A request hands over its next batch
    when it has the result of the last, so requests take turns. Codecs and walks over records release the GIL.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decoding")

    async def run(self, job: Callable[[int | None], T], compressed_size: int) -> T:
        """Return the result of a job that is given how many bytes it may decompress: on the loop if that is enough.

        None is no limit but the job's own. ``compressed_size`` is that of the batch, 0 for one that is not compressed.
        Raises what the job raises.
        """
        if compressed_size <= MAX_INLINE_SIZE:
            with contextlib.suppress(OversizedRecordsError):
                return job(INLINE_BYTES)
        return await self.run_in_thread(job)

    async def run_in_thread(self, job: Callable[[int | None], T]) -> T:
        """Return the result of a job that has no limit but its own. Raises what the job raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, job, None)

    def close(self) -> None:
        """End the thread when its job is done; jobs that wait are not done."""
        self._executor.shutdown(wait=False, cancel_futures=True)
