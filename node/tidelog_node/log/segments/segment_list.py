"""The segments of one log in order, with lookup by offset and their total size.

Finding a segment is a bisection; no other operation depends on their number, except those that return all.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from tidelog_node.log.segments.segment import Segment


class Segments:
    """At least one segment, oldest first; the last one, ``active``, grows, all others are sealed."""

    __slots__ = ("_sealed_bytes", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._sealed_bytes = sum(segment.size for segment in self._segments[:-1])
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size_in_bytes(self) -> int:
        """The size of all batches in bytes."""
        return self._sealed_bytes + self.active.size

    @property
    def base_offsets(self) -> list[int]:
        """The base offset of each segment."""
        return [segment.base_offset for segment in self._segments]

    def sealed(self) -> tuple[Segment, ...]:
        """Return all but the active one."""
        return tuple(self._segments[:-1])

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segments from the one that contains ``offset`` to the active one; all if it is below the first."""
        return self._segments[max(0, self._index_of(offset)) :]

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._sealed_bytes += self.active.size
        self._segments.append(segment)
        self.active = segment

    def replace_active(self, segment: Segment) -> None:
        """Replace the object of the active segment."""
        self._segments[-1] = self.active = segment

    def drop_last(self) -> None:
        """Remove the active segment, which is not the only one."""
        self._segments.pop()
        self.active = self._segments[-1]
        self._sealed_bytes -= self.active.size

    def drop_first(self) -> None:
        """Remove the oldest segment, which is not the only one."""
        self._sealed_bytes -= self._segments.pop(0).size

    def place_of(self, sources: Sequence[Segment]) -> int | None:
        """Return the index of the first of these consecutive sealed segments; None if they are not in the list."""
        if not sources:
            return None
        index = self._index_of(sources[0].base_offset)
        run = self._segments[index : index + len(sources)] if index >= 0 else []
        is_same = len(run) == len(sources) and all(map(lambda a, b: a is b, run, sources))
        return index if is_same and run[-1] is not self.active else None

    def replace(self, index: int, count: int, segment: Segment) -> None:
        """Replace several sealed segments with one."""
        self._sealed_bytes += segment.size - sum(old.size for old in self._segments[index : index + count])
        self._segments[index : index + count] = [segment]

    def check_invariants(self) -> None:
        """Assert that the segments are in order, do not overlap and have the counted size."""
        for segment, successor in zip(self._segments, self._segments[1:], strict=False):
            assert segment.base_offset < successor.base_offset, (segment.path, successor.path)
            assert segment.next_offset <= successor.base_offset, (segment.path, segment.next_offset, successor.path)
        assert self.active is self._segments[-1]
        assert self.size_in_bytes == sum(segment.size for segment in self._segments)

    def _index_of(self, offset: int) -> int:
        return bisect.bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
