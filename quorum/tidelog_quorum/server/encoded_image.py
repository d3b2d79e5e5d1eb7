"""An image as the batches that nodes are sent, encoded once for all of them.

The work is done in a thread, a batch at a time, when the fastest of the readers needs the next one: nothing is encoded
for nobody, and the slowest reader costs only that the batches are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog_quorum.metadata import MetadataImage, encode_batches


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """One batch of an image, and whether none follows."""

    data: bytes
    is_last: bool


class EncodedImage:
    """Lives while somebody reads it or may soon; all calls are on the event loop."""

    def __init__(self, image: MetadataImage) -> None:
        self.offset = image.offset
        self.epoch = image.epoch
        self._batches: list[bytes] = []
        self._rest: Iterator[bytes] | None = encode_batches(image.iterate_records())
        self._encoding = asyncio.Lock()

    async def batch(self, index: int) -> ImageBatch:
        """Return a batch; to be asked for in order, up to the last one."""
        # One more than is asked for, to know which is the last.
        while len(self._batches) < index + 2 and self._rest is not None:
            async with self._encoding:
                if len(self._batches) < index + 2 and self._rest is not None:
                    await self._encode_next(self._rest)
        return ImageBatch(self._batches[index], is_last=self._rest is None and index + 1 == len(self._batches))

    async def _encode_next(self, rest: Iterator[bytes]) -> None:
        # To the end also when the one who asked goes away: the thread has taken the batch out of the iterator.
        encoding = asyncio.ensure_future(asyncio.to_thread(next, rest, None))
        try:
            batch = await asyncio.shield(encoding)
        except asyncio.CancelledError:
            batch = await encoding
            self._take(batch)
            raise
        self._take(batch)

    def _take(self, batch: bytes | None) -> None:
        if batch is None:
            # The image is not held on to any longer.
            self._rest = None
        else:
            self._batches.append(batch)
