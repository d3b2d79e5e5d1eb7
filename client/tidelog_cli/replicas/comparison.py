"""Compares the batches of replicas as they arrive, in order of offset. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog_foundation.records import iter_headers, iter_records


@dataclass(frozen=True, slots=True)
class Difference:
    """The first record or batch at which two replicas differ, and a description of the difference."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a replica: its first offset, the offset behind its last one, and all its bytes."""

    base_offset: int
    next_offset: int
    data: bytes


def batches_of(records: bytes, end_offset: int) -> Iterator[Batch]:
    """Yield the whole batches of a fetch that end by ``end_offset``; the first may begin before the fetch offset."""
    for position, header in iter_headers(records):
        if header.next_offset <= end_offset:
            data = bytes(records[position : position + header.size_in_bytes])
            yield Batch(header.base_offset, header.next_offset, data)


def compare_batches(leader: Iterator[Batch], follower: Iterator[Batch]) -> Iterator[Difference | int]:
    """Yield the number of each pair of equal batches, and last the first difference, if there is one."""
    for number in itertools.count(1):
        ours, theirs = next(leader, None), next(follower, None)
        if ours is None and theirs is None:
            return
        if ours is None or theirs is None:
            present = ours or theirs
            who = "the follower" if ours else "the leader"
            assert present is not None
            yield Difference(present.base_offset, f"{who} has no batch of the offsets {_span(present)}")
            return
        if ours.data != theirs.data:
            yield _difference(ours, theirs)
            return
        yield number


def compare_records(leader: Iterator[Batch], follower: Iterator[Batch]) -> Iterator[Difference | int]:
    """Compare the records that two replicas of a compacted partition share; yields like the above, per record."""
    ours, theirs = _records(leader), _records(follower)
    number = 0
    left, right = next(ours, None), next(theirs, None)
    while left is not None and right is not None:
        if left[0] == right[0]:
            if left[1] != right[1]:
                yield Difference(left[0], "the records differ")
                return
            number += 1
            yield number
            left, right = next(ours, None), next(theirs, None)
        elif left[0] < right[0]:
            left = next(ours, None)
        else:
            right = next(theirs, None)


def _records(batches: Iterator[Batch]) -> Iterator[tuple[int, object]]:
    for batch in batches:
        for r in iter_records(batch.data):
            yield r.offset, (r.timestamp_ms, r.timestamp_type, r.key, r.value, tuple(r.headers))


def _difference(ours: Batch, theirs: Batch) -> Difference:
    offset = min(ours.base_offset, theirs.base_offset)
    if (ours.base_offset, ours.next_offset) != (theirs.base_offset, theirs.next_offset):
        return Difference(offset, f"the leader has a batch of {_span(ours)}, the follower one of {_span(theirs)}")
    return Difference(offset, f"the batches of the offsets {_span(ours)} differ")


def _span(batch: Batch) -> str:
    return f"{batch.base_offset}-{batch.next_offset - 1}"
