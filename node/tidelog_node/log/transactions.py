"""Finds the aborted transactions of an offset range in the indexes of a log's segments (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction


def find_aborted(segments: Iterable[Segment], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [start_offset, end_offset), all of which is stable.

    ``segments`` starts with the one that contains ``start_offset``. A marker may come later than the records that it
    ends, so the search continues until an index reports that no later segment has more. Raises OSError.
    """
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        found, is_complete = segment.transaction_index.aborted(start_offset, end_offset)
        aborted += found
        if is_complete:
            break
    return aborted
