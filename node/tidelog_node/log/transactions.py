"""Finds the aborted transactions of a range of offsets in the indexes of a log's segments (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction


def find_aborted(segments: Iterable[Segment], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [start_offset, end_offset), all of which is stable.

    ``segments`` begin with the one that ``start_offset`` is in: a marker may come later than what it ends, so that all
    are searched until one says that no later one has more. Raises OSError.
    """
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        found, is_complete = segment.transaction_index.aborted(start_offset, end_offset)
        aborted += found
        if is_complete:
            break
    return aborted
