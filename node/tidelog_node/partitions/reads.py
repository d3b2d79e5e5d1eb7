"""What a fetch of one partition asks for and gets. Reads of a log, no state of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import NO_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_foundation.records import iter_headers
from tidelog_node.log import PartitionLog
from tidelog_node.log.segments.transaction_index import AbortedTransaction
from tidelog_node.replication import EpochEnd, FetchLease, find_divergence


class FollowerIdentity(NamedTuple):
    """Which replica fetches, in which registration, and in which session if any."""

    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    lease: FetchLease | None = None


@dataclass(slots=True)
class ReadRequest:
    """A fetch of one partition.

    ``leader_epoch`` is the one that the reader believes in, None for "do not check" (KIP-320), and
    ``last_fetched_epoch`` that of the last record it has, None for none, or "do not check". ``log_start_offset`` is
    where a follower's log starts. A request that ``is_held_back`` gets no records now. One that ``is_repeated`` was
    looked at before, and has counted as the acknowledgement of this offset.
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
    """What a fetch of one partition gives: records, or where the follower's log diverges.

    ``aborted`` are the transactions among the records that a read_committed reader drops; None for other readers.
    """

    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    diverging: EpochEnd | None = None
    has_all: bool = False
    """Whether the same fetch finds nothing else until the partition changes."""


def read_for_consumer(log: PartitionLog, request: ReadRequest, high_watermark: int) -> ReadResult:
    """Return committed records: below the high watermark, or the last stable offset with read_committed.

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
    """Return all records that are there, committed or not.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
    """
    return _read(log, request, log.log_end_offset)


def read_divergence(log: PartitionLog, request: ReadRequest, high_watermark: int) -> ReadResult | None:
    """Return the answer that says where a reader's log leaves this one, None when it is a prefix or did not say.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE: this log does not reach back to the reader's end, or knows nothing of it.
    """
    if request.last_fetched_epoch is None:
        return None
    leader_end = epoch_end(log.end_offset_for_epoch(request.last_fetched_epoch))
    if leader_end is None or request.fetch_offset < log.log_start_offset:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.directory.name}: offset {request.fetch_offset} after epoch {request.last_fetched_epoch}: the log"
            f" starts at {log.log_start_offset}, its latest epoch is {log.latest_epoch}",
        )
    diverging = find_divergence(request.last_fetched_epoch, request.fetch_offset, leader_end)
    if diverging is None:
        return None
    last_stable = log.last_stable_offset(high_watermark)
    return ReadResult(b"", high_watermark, last_stable, log.log_start_offset, diverging=diverging)


def epoch_at(log: PartitionLog, offset: int) -> LeaderEpoch:
    """Return the leader epoch that the record at an offset has or will have; -1 when it is not known."""
    epochs = (entry.epoch for entry in reversed(log.epoch_entries) if entry.start_offset <= offset)
    return next(epochs, NO_EPOCH)


def epoch_end(answer: tuple[int, int]) -> EpochEnd | None:
    """Return a log's answer to "where does this epoch end", None for "not known"."""
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
