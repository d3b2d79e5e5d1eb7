"""An image as batches for the nodes, encoded once for all of them.

A thread encodes a batch at a time, when the fastest reader needs the next one: no batch is encoded without a reader,
and a slow reader only costs the memory of the batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog_quorum.metadata import MetadataImage, encode_batches


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """One batch of an image, and whether it is the last one."""

    data: bytes
    is_last: bool


class EncodedImage:
    """The batches of one image, shared by its readers; all calls are on the event loop."""

    def __init__(self, image: MetadataImage) -> None:
        self.offset = image.offset
        self.epoch = image.epoch
        self._batches: list[bytes] = []
        self._rest: Iterator[bytes] | None = encode_batches(image.iterate_records())
        self._encoding = asyncio.Lock()

    async def batch(self, index: int) -> ImageBatch:
        """Return a batch; callers request them in order, up to the last one."""
        # One batch ahead, to know which is the last.
        while len(self._batches) < index + 2 and self._rest is not None:
            async with self._encoding:
                if len(self._batches) < index + 2 and self._rest is not None:
                    await self._encode_next(self._rest)
        return ImageBatch(self._batches[index], is_last=self._rest is None and index + 1 == len(self._batches))

    async def _encode_next(self, rest: Iterator[bytes]) -> None:
        # Finish even if the caller goes away: the thread has taken the batch out of the iterator.
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
            # Release the image.
            self._rest = None
        else:
            self._batches.append(batch)
