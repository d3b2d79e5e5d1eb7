"""The segments of one log in order: which one an offset is in, and how many bytes they have together.

Nothing here depends on how many there are, but the search for one, which is a bisection.
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
        """The bytes of all batches."""
        return self._sealed_bytes + self.active.size

    @property
    def base_offsets(self) -> list[int]:
        """Where each segment begins."""
        return [segment.base_offset for segment in self._segments]

    def sealed(self) -> tuple[Segment, ...]:
        """Return all but the active one."""
        return tuple(self._segments[:-1])

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segments from the one that an offset is in to the active one; the first when it is below all."""
        return self._segments[max(0, self._index_of(offset)) :]

    def add(self, segment: Segment) -> None:
        """Put a new active segment behind all."""
        self._sealed_bytes += self.active.size
        self._segments.append(segment)
        self.active = segment

    def replace_active(self, segment: Segment) -> None:
        """Put another object in the place of the active segment."""
        self._segments[-1] = self.active = segment

    def drop_last(self) -> None:
        """Take the active segment away, of at least two."""
        self._segments.pop()
        self.active = self._segments[-1]
        self._sealed_bytes -= self.active.size

    def drop_first(self) -> None:
        """Take the oldest segment away, of at least two."""
        self._sealed_bytes -= self._segments.pop(0).size

    def place_of(self, sources: Sequence[Segment]) -> int | None:
        """Return the index of sealed segments, by identity and in one run; None when they are not these."""
        if not sources:
            return None
        index = self._index_of(sources[0].base_offset)
        run = self._segments[index : index + len(sources)] if index >= 0 else []
        is_same = len(run) == len(sources) and all(map(lambda a, b: a is b, run, sources))
        return index if is_same and run[-1] is not self.active else None

    def replace(self, index: int, count: int, segment: Segment) -> None:
        """Put one sealed segment in the place of several."""
        self._sealed_bytes += segment.size - sum(old.size for old in self._segments[index : index + count])
        self._segments[index : index + count] = [segment]

    def check_invariants(self) -> None:
        """Assert that the segments are in order, do not overlap and have the bytes that are counted."""
        for segment, successor in zip(self._segments, self._segments[1:], strict=False):
            assert segment.base_offset < successor.base_offset, (segment.path, successor.path)
            assert segment.next_offset <= successor.base_offset, (segment.path, segment.next_offset, successor.path)
        assert self.active is self._segments[-1]
        assert self.size_in_bytes == sum(segment.size for segment in self._segments)

    def _index_of(self, offset: int) -> int:
        return bisect.bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
