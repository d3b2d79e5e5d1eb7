"""Distribution of the rows of columns over partitions, and the definition of the compiled twin.

Contents are results of ``records.sources.content_source``. ``array`` stands for buffers of int32 (``i``) and int64
(``q``).
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from tidelog.producer.core.hashes import KeyHash
from tidelog_foundation.records.columns import BinaryColumn
from tidelog_foundation.records.sources import ContentSource, content_at

if TYPE_CHECKING:
    Numbers = array[int] | memoryview[int]

STICKY = -1


def largest(values: ContentSource, keys: ContentSource | None) -> tuple[int, int]:
    """Return the size of the largest record's key and value, and its row; (0, -1) without rows.

    Raises:
        TypeError: a content is neither bytes nor None.
        ValueError: there are fewer keys than values.
    """
    if keys is not None and _count(keys) < _count(values):
        raise ValueError(f"{_count(keys)} keys for {_count(values)} values")
    size, at = 0, -1
    for row in range(_count(values)):
        own = len(content_at(values, row, "value") or b"")
        if keys is not None:
            own += len(content_at(keys, row, "key") or b"")
        if at < 0 or own > size:
            size, at = own, row
    return size, at


def choose_partitions(
    keys: ContentSource, key_hash: int, keyless_hash: int, empty_sticks: bool, count: int, chosen: Numbers
) -> None:
    """Put the partition of each key into ``chosen`` where it is -1; sticky records stay at -1.

    Raises:
        TypeError: a key is neither bytes nor None.
        ValueError: there are no partitions.
    """
    if not 0 < count < 2**31:
        raise ValueError(f"{count} partitions")
    for row in range(_count(keys)):
        if chosen[row] != STICKY:
            continue
        key = content_at(keys, row, "key")
        if key is None and keyless_hash >= 0:
            chosen[row] = keyless_hash % count
        elif key or (key is not None and not empty_sticks):
            chosen[row] = KeyHash(key_hash).of(key) % count


def group(chosen: array[int], count: int) -> tuple[array[int], list[int]]:
    """Return the rows sorted by partition, sticky ones first, and the start of each group from -1 to count - 1.

    Rows of one partition keep their order. The last number in the list is the end of all groups.
    """
    sizes = [0] * (count + 1)
    for partition in chosen:
        sizes[partition + 1] += 1
    starts = [0, *accumulate(sizes)]
    places = list(starts)
    rows = array("q", bytes(8 * len(chosen)))
    for row, partition in enumerate(chosen):
        rows[places[partition + 1]] = row
        places[partition + 1] += 1
    return rows, starts


def gather(contents: ContentSource, rows: array[int], start: int, end: int, max_bytes: int, name: str) -> BinaryColumn:
    """Return the contents of ``rows[start:end]`` as one column: at least one row, and at most ``max_bytes``."""
    parts: list[bytes] = []
    valid = bytearray((end - start + 7) // 8)
    places = array("q", [0])
    for index in range(end - start):
        content = content_at(contents, rows[start + index], name)
        if index and places[-1] + len(content or b"") > max_bytes:
            break
        if content is not None:
            valid[index >> 3] |= 1 << (index & 7)
            parts.append(bytes(content))
        places.append(places[-1] + len(content or b""))
    data = memoryview(b"".join(parts))
    return BinaryColumn(len(places) - 1, memoryview(valid), 0, memoryview(places), 0, data)


def fill(offsets: Numbers, rows: array[int] | None, first: int, count: int, base: int) -> None:
    """Write base, base + 1 ... to the rows ``rows[first:first + count]``, by default to those from ``first`` on."""
    for index in range(count):
        offsets[first + index if rows is None else rows[first + index]] = base + index


def _count(contents: ContentSource) -> int:
    return contents.rows if isinstance(contents, BinaryColumn) else len(contents)


def pick(numbers: memoryview, rows: array[int], start: int, end: int) -> memoryview:
    """Return the numbers (int64) at ``rows[start:end]``."""
    return memoryview(array("q", (numbers[row] for row in rows[start:end])))


def stamp(chosen: Numbers, rows: array[int] | None, first: int, count: int, partition: int) -> None:
    """Write the partition to the rows ``rows[first:first + count]``, by default to those from ``first`` on."""
    for index in range(first, first + count):
        chosen[index if rows is None else rows[index]] = partition
