"""Fetches one range of offsets from the partition's leader, through leader changes and restarts.

It delivers every record of the range that the cluster has, in order, by default without those of aborted transactions.
Offsets that the log no longer has are data loss, and so is a range of a topic that is deleted or was created again: an
error, or skipped and counted if the user allows it. After a retriable error, with an unreachable leader, or while the
high watermark lags behind after an election, it retries until the poll timeout passes without progress.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Broker, ClusterClient
from tidelog.cluster.loop_time import now_ms
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.records import iter_headers, without_aborted
from tidelog_foundation.transport.loop import network_loop
from tidelog_foundation.waiting import ReportedWait
from tidelog_spark.clients import cluster_client
from tidelog_spark.source.bounds import FETCH_TIMEOUT_MS, TOPIC_CHANGED
from tidelog_spark.source.losses import DataLossError, report_losses, retention_loss, topic_loss
from tidelog_spark.source.offsets import OffsetRange
from tidelog_spark.source.options import SourceOptions
from tidelog_spark.source.topic_ids import find_topic_id
from tidelog_spark.worker import prepare_worker

_MAX_WAIT_MS = 500
_GUESSED_BYTES = 256.0
"""The size of a record before the first answer. More takes another fetch, less reads beyond the range."""
_LEAST_BYTES = 64 * 1024
"""The smallest request: smaller ones take as long."""
_ISOLATION = {True: pb.ISOLATION_LEVEL_READ_COMMITTED, False: pb.ISOLATION_LEVEL_READ_UNCOMMITTED}


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches; only their records in [offset, next_offset) count, earlier ones do not.

    No batch belongs to an aborted transaction, unless uncommitted records are read.
    """

    records: bytes
    offset: int
    next_offset: int


def fetch_range(options: SourceOptions, planned: OffsetRange) -> Iterator[Fetched]:
    """Yield the batches of a range, front to back; the next fetch runs while the caller processes one.

    The last batch may have records beyond the range.

    Raises:
        DataLossError: offsets are gone, and data loss is not allowed.
        TidelogError: _TIMED_OUT or the last error after the poll timeout.
    """
    prepare_worker()
    fetcher = RangeFetcher(cluster_client(options.client), options, planned)
    pending = _submit(fetcher, planned.start_offset)
    try:
        while True:
            fetched = pending.result()
            more = fetched.next_offset < planned.end_offset
            if more:
                pending = _submit(fetcher, fetched.next_offset)
            if fetched.records:
                yield fetched
            if not more:
                return
    finally:
        pending.cancel()


class RangeFetcher:
    """The retries of one range. Its coroutines run on the network thread."""

    def __init__(self, client: ClusterClient, options: SourceOptions, planned: OffsetRange) -> None:
        self._client = client
        self._planned = planned
        self._timeout_ms = options.poll_timeout_ms
        self._max_bytes = options.max_partition_fetch_bytes
        self._bytes_per_offset = _GUESSED_BYTES
        self._rack = options.client_rack
        self._preferred: Broker | None = None
        self._fail_on_data_loss = options.fail_on_data_loss
        self._is_read_committed = options.is_read_committed

    async def fetch(self, offset: int) -> Fetched:
        """Return the batches from ``offset`` on: at least one, unless the rest of the range is lost.

        Raises:
            TidelogError: as `fetch_range`.
        """
        with ReportedWait(f"records of {self._planned}") as wait:
            deadline = now_ms() + self._timeout_ms
            attempt = 0
            reason: TidelogError | None = None
            while True:
                try:
                    return await self._read_or_skip(offset, deadline)
                except DataLossError:
                    raise
                except TidelogError as error:
                    # The deadline cuts off the last request, and only the answers before it have a reason.
                    reason = reason if reason and error.code is ErrorCode.REQUEST_TIMED_OUT else error
                    attempt += 1
                    wait_ms = self._client.backoff.wait_ms(attempt)
                    if not error.code.retriable or now_ms() + wait_ms >= deadline:
                        raise reason from error.__cause__
                    wait.note(error)
                await asyncio.sleep(wait_ms / 1000)
                await self._refresh(deadline)

    async def _read_or_skip(self, offset: int, deadline: float) -> Fetched:
        try:
            return await self._ask_leader(offset, deadline)
        except TidelogError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return await self._skip_lost(offset, deadline)
            if error.code in TOPIC_CHANGED and self._planned.topic_id:
                return await self._skip_deleted(offset, deadline, error)
            raise

    async def _ask_leader(self, offset: int, deadline: float) -> Fetched:
        name, partition = self._planned.topic, self._planned.partition
        leader = await self._client.leader(name, partition, timeout_ms=_left_ms(deadline))
        result = await self._fetch_closest(leader, offset, deadline)
        if result.HasField("error"):
            if result.HasField("current_leader"):
                self._client.learn_leader(name, partition, result.current_leader)
            raise error_for(result.error.code, f"{self._planned}: {result.error.message}")
        # Each access of the field copies megabytes.
        fetched = result.records
        if not fetched:
            raise error_for(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self._planned}: nothing at offset {offset}, the high watermark is {result.high_watermark}",
            )
        aborted = [(transaction.producer_id, transaction.first_offset) for transaction in result.aborted_transactions]
        next_offset = _offset_after(fetched, offset)
        self._bytes_per_offset = len(fetched) / (next_offset - offset)
        return Fetched(without_aborted(fetched, aborted) if aborted else fetched, offset, next_offset)

    async def _fetch_closest(self, leader: Broker, offset: int, deadline: float) -> pb.FetchPartitionResult:
        """Return the answer of the replica that the leader prefers for the rack, or else of the leader (KIP-392)."""
        if self._rack and self._preferred is None:
            result = await self._fetch_from(leader, offset, deadline, self._rack)
            if not result.HasField("preferred_read_replica"):
                return result
            self._preferred = self._client.metadata.brokers.get(BrokerId(result.preferred_read_replica))
        if self._preferred is not None:
            with contextlib.suppress(TidelogError):
                result = await self._fetch_from(self._preferred, offset, deadline, self._rack)
                if result.records and not result.HasField("error"):
                    return result
            # It may be down or behind. The leader answers itself where it is told no rack.
            self._preferred = None
        return await self._fetch_from(leader, offset, deadline, "")

    async def _fetch_from(self, node: Broker, offset: int, deadline: float, rack: str) -> pb.FetchPartitionResult:
        while True:
            left_ms = _left_ms(deadline)
            # Half of the time left, so that an empty answer, which has the reason, comes before the deadline.
            request = self._request(offset, int(min(_MAX_WAIT_MS, left_ms / 2)), rack)
            try:
                response = await self._client.fetch(node.node_id, request, timeout_ms=min(left_ms, FETCH_TIMEOUT_MS))
            except TidelogError as error:
                raise error_for(error.code, f"{self._planned} from {node.address}: {error.message}") from error
            # Over its quotas, a client gets no results, and the node delays its next fetch.
            if response.topics:
                return response.topics[0].partitions[0]

    def _request(self, offset: int, max_wait_ms: int, rack: str) -> pb.FetchRequest:
        known = self._client.metadata.partition(self._planned.topic, self._planned.partition)
        max_bytes = bytes_to_request(self._planned.end_offset - offset, self._bytes_per_offset, self._max_bytes)
        item = pb.FetchPartition(
            index=self._planned.partition,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
            current_leader_epoch=None if known is None else known.leader_epoch,
        )
        return pb.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=_ISOLATION[self._is_read_committed],
            rack_id=rack,
            cluster_id=self._client.metadata.cluster_id,
            topics=[
                pb.FetchTopic(name=self._planned.topic, topic_id=self._planned.topic_id, partitions=[item]),
            ],
        )

    async def _skip_lost(self, offset: int, deadline: float) -> Fetched:
        key = (self._planned.topic, self._planned.partition)
        ids = {self._planned.topic: self._planned.topic_id}
        first = await self._client.list_offsets({key: EARLIEST_TIMESTAMP}, timeout_ms=_left_ms(deadline), topic_ids=ids)
        last = await self._client.list_offsets(
            {key: LATEST_TIMESTAMP},
            timeout_ms=_left_ms(deadline),
            read_committed=self._is_read_committed,
            topic_ids=ids,
        )
        start, end = first[key].offset, last[key].offset
        next_offset = min(start, self._planned.end_offset) if offset < start else self._planned.end_offset
        lost = retention_loss(key, self._planned.topic_id, offset, next_offset, (start, end))
        report_losses([lost], self._fail_on_data_loss)
        return Fetched(b"", offset, next_offset)

    async def _skip_deleted(self, offset: int, deadline: float, error: TidelogError) -> Fetched:
        """Skip the rest of the range if its topic is deleted, or else raise the retriable error."""
        name, topic_id = self._planned.topic, self._planned.topic_id
        current = await find_topic_id(self._client, name, topic_id, timeout_ms=_left_ms(deadline))
        if current == topic_id:
            raise error
        key = (name, self._planned.partition)
        lost = topic_loss(key, topic_id, offset, self._planned.end_offset, current or None)
        report_losses([lost], self._fail_on_data_loss)
        return Fetched(b"", offset, self._planned.end_offset)

    async def _refresh(self, deadline: float) -> None:
        # If no node answers now, the next attempt reports it.
        with contextlib.suppress(TidelogError):
            await self._client.refresh([self._planned.topic], timeout_ms=min(_left_ms(deadline), FETCH_TIMEOUT_MS))


def bytes_to_request(offsets: int, bytes_per_offset: float, most_bytes: int) -> int:
    """Return the bytes to request for the rest of a range.

    A node sends as much as it is asked for, and what lies beyond the range would be thrown away. If the rest is larger,
    it takes another fetch.
    """
    return min(max(int(offsets * bytes_per_offset), _LEAST_BYTES), most_bytes)


def _submit(fetcher: RangeFetcher, offset: int) -> Future[Fetched]:
    return asyncio.run_coroutine_threadsafe(fetcher.fetch(offset), network_loop())


def _offset_after(records: bytes, offset: int) -> int:
    next_offset = offset
    for _, header in iter_headers(records):
        next_offset = header.next_offset
    if next_offset <= offset:
        raise CorruptRecordError(f"a fetch from offset {offset} returned batches that end before it")
    return next_offset


def _left_ms(deadline: float) -> float:
    return max(deadline - now_ms(), 1)
