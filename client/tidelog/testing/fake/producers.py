"""Idempotent producers of a partition: which batch comes next, and which is there already (KIP-98, KIP-360).

The rules are the node's (`tidelog_node.log.producers`): a batch of the producer's epoch that is one of its last five is
there already; an older epoch is refused; a newer one begins with sequence 0; in an epoch the sequences follow one
another, 0 behind 2^31 - 1; a producer that is not known begins with any; and who has a transaction open writes in it.
Markers of transactions, and producers that have been silent for a day, the fake has none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidelog.v1 import log_service_pb2
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import NO_PRODUCER_ID, NO_TIMESTAMP, RecordBatchHeader

_REMEMBERED_BATCHES = 5
_SEQUENCES = 2**31
_NONE = -1


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch landed; ``log_append_time_ms`` is -1 unless the topic stamps LogAppendTime."""

    base_offset: int
    log_append_time_ms: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    txn_start_offset: int
    last_timestamp_ms: int = NO_TIMESTAMP
    batches: deque[tuple[int, int, AppendResult]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class Producers:
    """The last batches of each producer id; owned by one partition."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Producer] = {}

    def find_duplicate(self, header: RecordBatchHeader) -> AppendResult | None:
        """Return where the same batch was stored before, None for one that is to be appended.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        known = self._by_id.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or known is None:
            return None
        if header.producer_epoch == known.epoch:
            for first, last, result in known.batches:
                if (first, last) == (header.base_sequence, _last_sequence(header)):
                    return result
        _check_sequence(known, header)
        if known.txn_start_offset != _NONE and not header.is_transactional:
            text = f"producer {header.producer_id} has a transaction open: it may not write outside of it"
            raise error_for(ErrorCode.INVALID_TXN_STATE, text)
        return None

    def take(self, header: RecordBatchHeader, result: AppendResult, now_ms: int = NO_TIMESTAMP) -> None:
        """Remember a batch that was appended."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer = self._by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            txn_start_offset = _NONE if producer is None else producer.txn_start_offset
            producer = self._by_id[header.producer_id] = _Producer(header.producer_epoch, txn_start_offset)
        if header.is_transactional and producer.txn_start_offset == _NONE:
            producer.txn_start_offset = result.base_offset
        producer.last_timestamp_ms = max(header.max_timestamp, now_ms)
        producer.batches.append((header.base_sequence, _last_sequence(header), result))

    def describe(self) -> list[log_service_pb2.ActiveProducer]:
        """Return what is known of each producer."""
        return [
            log_service_pb2.ActiveProducer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1][1],
                last_timestamp_ms=producer.last_timestamp_ms,
                coordinator_epoch=_NONE,
                current_txn_start_offset=producer.txn_start_offset,
            )
            for producer_id, producer in self._by_id.items()
        ]


def _check_sequence(known: _Producer, header: RecordBatchHeader) -> None:
    name, epoch, sequence = f"producer {header.producer_id}", header.producer_epoch, header.base_sequence
    if epoch < known.epoch:
        text = f"{name} sends epoch {epoch}, the log has {known.epoch}"
        raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    if epoch > known.epoch:
        if sequence != 0:
            text = f"{name} begins epoch {epoch} (after {known.epoch}) with sequence {sequence}, expected 0"
            raise error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        return
    expected = (known.batches[-1][1] + 1) % _SEQUENCES
    if sequence != expected:
        text = f"{name} in epoch {epoch} sends sequence {sequence}, expected {expected}"
        raise error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _last_sequence(header: RecordBatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
