"""Reads that wait until a majority has confirmed that this leader still leads (paper 8, thesis 6.4).

A read records the commit index and a number that increases with each read. The leader's messages carry the number, and
the answers echo it; once a majority has echoed it, no later leader existed at the time of the request.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Read:
    request_id: int
    context: int
    index: int


class ReadQueue:
    """The reads of one leader in the order of their requests."""

    def __init__(self) -> None:
        self.context = 0
        self._early: list[int] = []
        self._reads: deque[_Read] = deque()

    def add_early(self, request_id: int) -> None:
        """Keep a read until the leader has committed an entry of its own term and so knows the commit index."""
        self._early.append(request_id)

    def add(self, request_id: int, commit_index: int) -> None:
        """Keep a read until a majority echoes the new ``context``."""
        self.context += 1
        self._reads.append(_Read(request_id, self.context, commit_index))

    def start_early(self, commit_index: int) -> None:
        """Start the reads that waited for the first commit of the leader's term."""
        for request_id in self._early:
            self.add(request_id, commit_index)
        self._early.clear()

    def take_ready(self, confirmed_context: int, applied_index: int) -> list[tuple[int, int]]:
        """Return (request id, index) of the confirmed reads whose index was delivered in a Commit."""
        ready = []
        while self._reads and self._reads[0].context <= confirmed_context and self._reads[0].index <= applied_index:
            read = self._reads.popleft()
            ready.append((read.request_id, read.index))
        return ready

    def take_all(self) -> list[int]:
        """Return the ids of all waiting reads, because the leader resigns."""
        ids = [read.request_id for read in self._reads] + self._early
        self._reads.clear()
        self._early.clear()
        return ids
