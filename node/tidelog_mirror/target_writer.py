"""Writes batches to partitions of one cluster: in order, idempotently, one batch of a partition in a request.

A batch that the cluster does not accept in a way that passes, such as a leader that moves, is sent again with the same
sequence. Other errors end the write: the caller begins again with a new producer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records.header import Buffer
from tidelog_mirror.batches import Producer, SourceBatch, following_sequence, stamped
from tidelog_mirror.cluster import MirrorCluster, Topics

logger = logging.getLogger(__name__)
_BACKOFF_S: Final = 0.1
_DUPLICATE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER.code


@dataclass(slots=True, eq=False)
class Lane:
    """The batches on their way to one partition of the target, in order."""

    topic: str
    partition: int
    sequence: int = 0
    pending: deque[SourceBatch] = field(default_factory=deque)
    pending_bytes: int = 0
    quota: int = 0
    """The number of pending batches that the present write includes."""
    written: list[tuple[SourceBatch, int]] = field(default_factory=list)
    """The batches that the present write has written, with their base offsets on the target, -1 if unknown."""

    def add(self, batch: SourceBatch) -> None:
        """Append a batch."""
        self.pending.append(batch)
        self.pending_bytes += batch.size

    def begin(self) -> int:
        """Include what is pending now in the next write, and return the source's offset behind it.

        Batches that are added later wait for another write, so that a transaction's positions fit its records.
        """
        self.quota = len(self.pending)
        self.written.clear()
        return self.pending[-1].next_offset

    def finish(self, base_offset: int) -> None:
        """Note that the first pending batch is written."""
        batch = self.pending.popleft()
        self.pending_bytes -= batch.size
        self.quota -= 1
        self.sequence = following_sequence(self.sequence, batch.record_count)
        self.written.append((batch, base_offset))


class TargetWriter:
    """A producer of a cluster with its lanes. One :meth:`write` runs at a time."""

    def __init__(self, cluster: MirrorCluster, max_request_bytes: int, timeout_s: float) -> None:
        self._cluster = cluster
        self._max_request_bytes = max_request_bytes
        self._timeout_s = timeout_s
        self._topics: Topics | None = None

    async def write(self, producer: Producer, lanes: Collection[Lane]) -> None:
        """Write what was pending when :meth:`Lane.begin` was called; then ``written`` of the lanes tells the offsets.

        Raises:
            TidelogError: A batch is refused, or the cluster has not accepted it in time.
        """
        deadline = time.monotonic() + self._timeout_s
        failure: TidelogError | None = None
        while remaining := [lane for lane in lanes if lane.quota]:
            if failure is not None:
                if time.monotonic() >= deadline:
                    raise failure
                await asyncio.sleep(_BACKOFF_S)
                self._topics = None
            failure = await self._attempt(producer, remaining)

    async def _attempt(self, producer: Producer, lanes: Collection[Lane]) -> TidelogError | None:
        """Write until all is written or something fails in a way that passes, and return that failure."""
        try:
            by_leader = await self._by_leader(lanes)
        except TidelogError as error:
            if not error.error.retriable():
                raise
            return error
        drains = [self._drain(producer, address, each) for address, each in by_leader.items()]
        found = await asyncio.gather(*drains, return_exceptions=True)
        failures = [each for each in found if each is not None]
        for each in failures:
            if not (isinstance(each, TidelogError) and each.error.retriable()):
                raise each
        return next((each for each in failures if isinstance(each, TidelogError)), None)

    async def _by_leader(self, lanes: Collection[Lane]) -> dict[str, deque[Lane]]:
        topics = self._topics
        if topics is None or any(topics.leader(lane.topic, lane.partition) is None for lane in lanes):
            topics = self._topics = await self._cluster.describe(list({lane.topic for lane in lanes}))
        found: dict[str, deque[Lane]] = {}
        for lane in lanes:
            leader = topics.leader(lane.topic, lane.partition)
            if leader is None:
                text = f"{lane.topic}-{lane.partition} has no leader on the target"
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, text)
            found.setdefault(leader[0], deque()).append(lane)
        return found

    async def _drain(self, producer: Producer, address: str, lanes: deque[Lane]) -> None:
        """Write to one leader. A lane with a failure stops, and the others go on."""
        failure: TidelogError | None = None
        while lanes:
            used, wanted = self._next_request(producer, lanes)
            results = await self._cluster.produce(address, producer.transactional_id, wanted)
            for lane in used:
                result = results.get((lane.topic, lane.partition))
                if result is None:
                    raise error_for(
                        ErrorCode._TRANSPORT, f"{address} has not answered for {lane.topic}-{lane.partition}"
                    )
                if result.error_code not in (0, _DUPLICATE):
                    failure = _failure(lane, result.error_code, result.error_message)
                    if not failure.error.retriable():
                        raise failure
                    continue
                lane.finish(result.base_offset)
                if lane.quota:
                    lanes.append(lane)
        if failure is not None:
            raise failure

    def _next_request(
        self, producer: Producer, lanes: deque[Lane]
    ) -> tuple[list[Lane], dict[str, dict[int, Sequence[Buffer]]]]:
        """Take lanes from the queue while their first batches fit into one request."""
        used: list[Lane] = []
        wanted: dict[str, dict[int, Sequence[Buffer]]] = {}
        size = 0
        while lanes:
            lane = lanes[0]
            batch = lane.pending[0]
            size += batch.size
            if used and size > self._max_request_bytes:
                break
            lanes.popleft()
            used.append(lane)
            header = stamped(batch, producer, lane.sequence)
            wanted.setdefault(lane.topic, {})[lane.partition] = (header, batch.records)
        return used, wanted


def _failure(lane: Lane, code: int, text: str | None) -> TidelogError:
    error = error_for(code)
    batch = lane.pending[0]
    where = f"the batch at offset {batch.base_offset} of the source for {lane.topic}-{lane.partition}"
    return error_for(code, f"{where}: {text or error.message}")
