"""Requests and results of a fetch of one partition, and stateless reads of its log."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import NO_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_foundation.records import iter_headers
from tidelog_node.log import PartitionLog
from tidelog_node.log.segments.transaction_index import AbortedTransaction
from tidelog_node.replication import EpochEnd, FetchLease, find_divergence


class FollowerIdentity(NamedTuple):
    """A fetching replica, with the broker epoch of its registration and the lease of its session, if any."""

    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    lease: FetchLease | None = None


@dataclass(slots=True)
class ReadRequest:
    """A fetch of one partition.

    ``leader_epoch`` is the reader's known leader epoch; None skips the check (KIP-320). ``last_fetched_epoch`` is the
    epoch of the reader's last record; None means no record, or skips the check. ``log_start_offset`` is the start of a
    follower's log. A request that ``is_held_back`` gets no records now. A request that ``is_repeated`` was read before
    and has already acknowledged its offset.
    """

    fetch_offset: int
    max_bytes: int
    leader_epoch: LeaderEpoch | None = None
    is_read_committed: bool = False
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: int = -1
    is_held_back: bool = False
    is_repeated: bool = False


@dataclass(slots=True)
class ReadResult:
    """The result of a fetch of one partition: records, or the point where the reader's log diverges.

    ``aborted`` lists the transactions whose records a read_committed reader drops; None for other readers.
    """

    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    diverging: EpochEnd | None = None
    has_all: bool = False
    """True if the same fetch finds nothing new until the partition changes."""


def read_for_consumer(log: PartitionLog, request: ReadRequest, high_watermark: int) -> ReadResult:
    """Return committed records below the high watermark, or below the last stable offset with read_committed.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
    """
    diverging = read_divergence(log, request, high_watermark)
    if diverging is not None:
        return diverging
    last_stable = log.last_stable_offset(high_watermark)
    limit = last_stable if request.is_read_committed else high_watermark
    records = _read(log, request, limit)
    aborted = _aborted(log, request.fetch_offset, records) if request.is_read_committed else None
    has_all = request.fetch_offset >= limit
    return ReadResult(records, high_watermark, last_stable, log.log_start_offset, aborted, has_all=has_all)


def read_for_follower(log: PartitionLog, request: ReadRequest) -> bytes:
    """Return records up to the log's end, committed or not.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
    """
    return _read(log, request, log.log_end_offset)


def read_divergence(log: PartitionLog, request: ReadRequest, high_watermark: int) -> ReadResult | None:
    """Return the result with the divergence of a reader's log; None if it is a prefix or the request has no epoch.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE: This log starts above the reader's end, or does not know its epoch.
    """
    epoch, offset = request.last_fetched_epoch, request.fetch_offset
    if epoch is None:
        return None
    if 0 <= epoch == log.latest_epoch and log.log_start_offset <= offset <= log.log_end_offset:
        # The end of the latest epoch is the log's end.
        return None
    leader_end = epoch_end(log.end_offset_for_epoch(epoch))
    if leader_end is None or offset < log.log_start_offset:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.directory.name}: offset {offset} after epoch {epoch} is out of"
            f" range: the log starts at {log.log_start_offset} and its latest epoch is {log.latest_epoch}",
        )
    diverging = find_divergence(epoch, offset, leader_end)
    if diverging is None:
        return None
    last_stable = log.last_stable_offset(high_watermark)
    return ReadResult(b"", high_watermark, last_stable, log.log_start_offset, diverging=diverging)


def epoch_at(log: PartitionLog, offset: int) -> LeaderEpoch:
    """Return the leader epoch of the present or future record at an offset; -1 if unknown."""
    epochs = (entry.epoch for entry in reversed(log.epoch_entries) if entry.start_offset <= offset)
    return next(epochs, NO_EPOCH)


def epoch_end(answer: tuple[int, int]) -> EpochEnd | None:
    """Return a log's answer about an epoch's end as an EpochEnd; None if the log does not know the epoch."""
    epoch, end_offset = answer
    return None if epoch < 0 else EpochEnd(LeaderEpoch(epoch), end_offset)


def _read(log: PartitionLog, request: ReadRequest, limit: int) -> bytes:
    if request.fetch_offset == limit or request.is_held_back:
        return b""
    return log.read(request.fetch_offset, request.max_bytes, limit)


def _aborted(log: PartitionLog, fetch_offset: int, records: bytes) -> tuple[AbortedTransaction, ...]:
    end_offset = fetch_offset
    for _, header in iter_headers(records):
        end_offset = header.next_offset
    return tuple(log.aborted_transactions(fetch_offset, end_offset)) if records else ()
