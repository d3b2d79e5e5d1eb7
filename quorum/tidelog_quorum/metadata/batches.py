"""Batches of records as bytes: images in batches of bounded size, large batches split, and the frames of snapshots.

A batch is a serialized ``MetadataRecordBatch``: the payload of a log entry, a part of one that is sent to a node, or a
part of an image. The payload of a snapshot is a frame per batch: the batch's length in four bytes, big-endian, and the
batch. Equal images give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.metadata.codec import decode_batch, to_message
from tidelog_quorum.metadata.image import MetadataImage, MetadataImageBuilder
from tidelog_quorum.metadata.records import MetadataRecord

MAX_BATCH_BYTES = 256 * 1024
"""Small enough to decode in a few milliseconds; only a single record may be larger."""
_TAG = 0x0A
_FRAME_HEADER_BYTES = 4


def encode_batches(records: Iterable[MetadataRecord], max_bytes: int = MAX_BATCH_BYTES) -> Iterator[bytes]:
    """Yield the records in batches of at most ``max_bytes``, or of a single larger record; at least one batch."""
    batch = bytearray()
    is_first = True
    for record in records:
        item = _item(to_message(record).SerializeToString(deterministic=True))
        if batch and len(batch) + len(item) > max_bytes:
            yield bytes(batch)
            is_first = False
            batch.clear()
        batch += item
    if batch or is_first:
        yield bytes(batch)


def cut_batch(batch: bytes, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[bytes]:
    """Split a batch into batches of at most ``max_bytes``, or of a single larger record.

    Raises:
        TidelogError: CORRUPT_MESSAGE, the bytes are not a batch.
    """
    start = end = 0
    while end < len(batch):
        following = _item_end(batch, end)
        if following - start > max_bytes and end > start:
            yield batch[start:end]
            start = end
        end = following
    if end > start or not batch:
        yield batch[start:end]


def image_from_batches(offset: int, epoch: int, batches: Iterable[bytes]) -> MetadataImage:
    """Return the image from the batches of :func:`encode_batches`.

    Raises:
        TidelogError: as ``decode_batch`` and ``MetadataImage.apply``.
    """
    builder = MetadataImageBuilder(MetadataImage())
    for batch in batches:
        builder.add(decode_batch(batch))
    return builder.finish(offset, epoch)


def frame_batches(batches: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames of a snapshot's payload."""
    for batch in batches:
        yield len(batch).to_bytes(_FRAME_HEADER_BYTES, "big") + batch


def read_frames(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the batches of a snapshot's payload; ``chunks`` may be cut anywhere.

    Raises:
        TidelogError: CORRUPT_MESSAGE, it ends inside a frame.
    """
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        position = 0
        while (end := _frame_end(buffer, position)) is not None and end <= len(buffer):
            yield bytes(buffer[position + _FRAME_HEADER_BYTES : end])
            position = end
        del buffer[:position]
    if buffer:
        raise _corrupt(f"a snapshot ends inside a frame, {len(buffer)} bytes behind the one before")


def _frame_end(buffer: bytearray, position: int) -> int | None:
    body = position + _FRAME_HEADER_BYTES
    return None if body > len(buffer) else body + int.from_bytes(buffer[position:body], "big")


def _item(record: bytes) -> bytes:
    size, length = len(record), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes((_TAG, *length)) + record


def _item_end(batch: bytes, position: int) -> int:
    """Return the end of the record whose tag is at a position (protobuf's encoding of a repeated message)."""
    if batch[position] != _TAG:
        raise _corrupt(f"no metadata record at byte {position} of a batch of {len(batch)} bytes")
    if position + 1 < len(batch) and batch[position + 1] < 0x80:
        # The length of nearly every record takes one byte.
        end = position + 2 + batch[position + 1]
        if end <= len(batch):
            return end
    size = shift = 0
    for index in range(position + 1, min(position + 6, len(batch))):
        size |= (batch[index] & 0x7F) << shift
        shift += 7
        if batch[index] < 0x80:
            end = index + 1 + size
            if end <= len(batch):
                return end
            break
    raise _corrupt(f"the metadata record at byte {position} is longer than its batch of {len(batch)} bytes")


def _corrupt(problem: str) -> TidelogError:
    return error_for(ErrorCode.CORRUPT_MESSAGE, problem)
