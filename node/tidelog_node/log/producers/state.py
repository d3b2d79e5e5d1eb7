"""The rules of idempotent and transactional producers on one partition (KIP-98, KIP-360). Pure: no I/O.

Owns the state of each producer id in the log: its epoch, its last five batches, its open transaction.
:meth:`ProducerState.check` validates a batch from a client, :meth:`ProducerState.check_marker` a marker from a
transaction coordinator; :meth:`ProducerState.append` applies every batch that is in the log, whoever appended it. The
rules are those of Kafka's ProducerStateManager:

- A batch with the epoch and the exact first and last sequence of one of the producer's last five is a duplicate.
- An epoch below the producer's is refused with INVALID_PRODUCER_EPOCH; a higher one begins with sequence 0.
- In one epoch the first sequence follows the last one, 0 follows 2^31 - 1; else OUT_OF_ORDER_SEQUENCE_NUMBER. An epoch
  without a batch, as after a marker that raised it, begins with 0.
- An unknown producer, new or expired, may begin with any sequence.
- A batch outside of a transaction is refused with INVALID_TXN_STATE while the producer has one open. A transactional
  batch without an open transaction needs a verification (:mod:`.verification`).
- A transaction begins with its first batch and ends with its marker. A marker of an older epoch, or of an older
  coordinator epoch, is refused. From transaction version 2 on, so is one with the epoch of the open transaction: each
  end raises the epoch (KIP-890), so that marker ended an earlier transaction. A marker without a transaction raises the
  epochs and completes nothing.
- The first unstable offset is that of the oldest transaction that is open, or whose marker is not below the high
  watermark. An aborted transaction is recorded with the last stable offset at its end.
- A producer expires after it has been idle for the expiration time, but never with an open transaction.

Batches in the log are never refused: a follower and a replay apply them as the leader wrote them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import NO_PRODUCER_EPOCH, NO_SEQUENCE, RecordBatchHeader
from tidelog_node.log.producers.entries import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    NO_TIME,
    RETAINED_BATCHES,
    BatchMetadata,
    CompletedTransaction,
    Duplicate,
    EndTransactionMarker,
    ProducerEntry,
)
from tidelog_node.log.producers.verification import MAX_SEQUENCE, NO_GUARD, Verifications, is_before

_RAISES_EPOCH = 2
"""The first ``transaction.version`` in which the end of a transaction raises the producer's epoch (KIP-890)."""


class ProducerState:
    """All producers of one partition. Calls follow the order of the log.

    A new object describes an empty log; :meth:`restore` loads a snapshot.
    """

    __slots__ = ("_expiration_ms", "_ongoing", "_producers", "_unreplicated", "_verifications")

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._producers: dict[int, _Producer] = {}
        # First offset to producer id, ascending, because each new transaction has the highest first offset.
        self._ongoing: dict[int, int] = {}
        # (marker's offset, first offset), ascending by marker.
        self._unreplicated: deque[tuple[int, int]] = deque()
        self._verifications = Verifications()

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or ends at or above the high watermark."""
        undecided = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return undecided
        unreplicated = min(first_offset for _, first_offset in self._unreplicated)
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def needs_verification(self, header: RecordBatchHeader) -> bool:
        """Return whether :meth:`begin_verification` would return a guard for a transactional batch."""
        producer = self._producers.get(header.producer_id)
        return producer is None or producer.would_begin_transaction(header)

    def begin_verification(self, header: RecordBatchHeader, *, begins_at_zero: bool = False, now_ms: int = 0) -> int:
        """Return the guard of a transactional batch that its coordinator must confirm, or NO_GUARD.

        A batch of an open transaction needs no guard, nor does a duplicate or one with a sequence that was appended
        already, which :meth:`check` refuses. ``begins_at_zero`` is for producers of transaction version 2.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH.
        """
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            if header.producer_epoch < producer.epoch:
                raise _stale_epoch(producer, header)
            if not producer.would_begin_transaction(header):
                return NO_GUARD
        return self._verifications.begin(header, begins_at_zero, now_ms)

    def check(self, header: RecordBatchHeader, guard: int = NO_GUARD) -> Duplicate | None:
        """Check whether a leader may append a client's batch; return None, or the batch in the log that it duplicates.

        The batch's offsets are ignored. ``guard`` is the guard of the batch's verification. The state is unchanged.

        Raises:
            TidelogError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_id < 0:
            if header.is_transactional:
                self._verifications.check(header, guard, is_known=False)
            return None
        if header.producer_epoch == producer.epoch:
            last_sequence = _last_sequence(header)
            for batch in producer.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp_ms)
        if header.producer_epoch < producer.epoch:
            raise _stale_epoch(producer, header)
        if header.is_transactional and producer.would_begin_transaction(header):
            self._verifications.check(header, guard, is_known=True)
        _check_sequence(producer, header)
        if producer.txn_first_offset != NO_OFFSET and not header.is_transactional:
            raise error_for(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset {producer.txn_first_offset}:"
                " it may not write outside of it",
            )
        return None

    def check_coordinated(self, header: RecordBatchHeader, guard: int) -> None:
        """Check whether a leader may append a transactional batch of its group coordinator, which has no sequence.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        producer = self._producers.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            raise _stale_epoch(producer, header)
        if producer is None or producer.would_begin_transaction(header):
            self._verifications.check(header, guard, is_known=producer is not None)

    def check_marker(
        self, header: RecordBatchHeader, marker: EndTransactionMarker, transaction_version: int = 0
    ) -> None:
        """Check whether a leader may append the marker of a transaction coordinator. The state is unchanged.

        ``transaction_version`` is the version of the client that ended the transaction.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        is_open = producer.txn_first_offset != NO_OFFSET
        is_earlier = transaction_version >= _RAISES_EPOCH and is_open and header.producer_epoch == producer.epoch
        if is_earlier or header.producer_epoch < producer.epoch:
            raise _stale_epoch(producer, header)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise error_for(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {header.producer_id} of coordinator epoch {marker.coordinator_epoch},"
                f" the log has {producer.coordinator_epoch}",
            )

    def append(
        self, header: RecordBatchHeader, marker: EndTransactionMarker | None = None, now_ms: int = NO_TIME
    ) -> CompletedTransaction | None:
        """Apply a batch of the log, with its final offsets, and return the transaction that it ends, if any.

        That transaction stays open until :meth:`complete`. ``marker`` is the marker in a control batch, None if it was
        compacted away; such a batch changes nothing. ``now_ms`` keeps producers with old timestamps from expiring
        immediately.
        """
        producer_id = header.producer_id
        if producer_id < 0 or (header.is_control and marker is None):
            return None
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer()
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches = ()
        producer.last_timestamp = max(header.max_timestamp, now_ms)
        if header.is_transactional:
            self._verifications.drop(producer_id)
        if marker is not None:
            return self._end_transaction(producer, header, marker)
        batch = BatchMetadata(
            _last_sequence(header), header.last_offset, header.last_offset_delta, header.max_timestamp
        )
        producer.batches = (*producer.batches[1 - RETAINED_BATCHES :], batch)
        if header.is_transactional and producer.txn_first_offset == NO_OFFSET:
            producer.txn_first_offset = header.base_offset
            self._ongoing[header.base_offset] = producer_id
        return None

    def complete(self, transaction: CompletedTransaction) -> None:
        """Close a transaction, after the index has it if it was aborted; it is stable once its marker is replicated.

        Raises:
            ValueError: it is not open.
        """
        if self._ongoing.pop(transaction.first_offset, None) != transaction.producer_id:
            raise ValueError(f"{transaction} is not open")
        self._unreplicated.append((transaction.last_offset, transaction.first_offset))

    def advance_high_watermark(self, offset: int) -> None:
        """Record that everything below ``offset`` is replicated."""
        while self._unreplicated and self._unreplicated[0][0] < offset:
            self._unreplicated.popleft()

    def expire(self, now_ms: int) -> int:
        """Remove the producers that have been idle for the expiration time, and return their number."""
        limit = now_ms - self._expiration_ms
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_timestamp <= limit and producer.txn_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self._verifications.expire(limit)
        return len(expired)

    def entries(self) -> list[ProducerEntry]:
        """Return every producer, in no particular order."""
        return [producer.entry(producer_id) for producer_id, producer in self._producers.items()]

    def restore(self, entries: Iterable[ProducerEntry], offset: int, now_ms: int) -> None:
        """Replace the state with a snapshot of the log below ``offset``.

        Expired producers are left out. Transactions that ended below ``offset`` and wait for the high watermark still
        wait: their markers are in the log as before.
        """
        self._producers = {entry.producer_id: _Producer.of(entry) for entry in entries}
        started = [(p.txn_first_offset, i) for i, p in self._producers.items() if p.txn_first_offset != NO_OFFSET]
        self._ongoing = dict(sorted(started))
        self._unreplicated = deque(ended for ended in self._unreplicated if ended[0] < offset)
        self._verifications.clear()
        self.expire(now_ms)

    def clear(self) -> None:
        """Remove everything."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()

    def check_invariants(self) -> None:
        """Assert that producers and transactions agree."""
        assert list(self._ongoing) == sorted(self._ongoing), self._ongoing
        assert list(self._unreplicated) == sorted(self._unreplicated), self._unreplicated
        assert all(first < last for last, first in self._unreplicated), self._unreplicated
        open_transactions = {
            producer.txn_first_offset: producer_id
            for producer_id, producer in self._producers.items()
            if producer.txn_first_offset != NO_OFFSET
        }
        assert open_transactions.items() <= self._ongoing.items(), (open_transactions, self._ongoing)
        for producer_id, producer in self._producers.items():
            assert producer_id >= 0, producer_id
            producer.check_invariants()

    def _end_transaction(
        self, producer: _Producer, header: RecordBatchHeader, marker: EndTransactionMarker
    ) -> CompletedTransaction | None:
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset, producer.txn_first_offset = producer.txn_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        others = (start for start in self._ongoing if start != first_offset)
        last_offset = header.base_offset
        return CompletedTransaction(
            header.producer_id, first_offset, last_offset, next(others, last_offset + 1), marker.is_commit
        )


class _Producer:
    """One producer id; ``batches`` has the last five of ``epoch``, oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIME
        self.txn_first_offset = NO_OFFSET
        self.batches: tuple[BatchMetadata, ...] = ()

    @classmethod
    def of(cls, entry: ProducerEntry) -> _Producer:
        producer = cls()
        producer.epoch = entry.producer_epoch
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.last_timestamp = entry.last_timestamp
        producer.txn_first_offset = entry.current_txn_first_offset
        producer.batches = entry.batches
        return producer

    def would_begin_transaction(self, header: RecordBatchHeader) -> bool:
        """Return whether a transactional batch would begin one, unless its sequence was appended already."""
        if self.epoch != header.producer_epoch:
            return True
        if self.txn_first_offset != NO_OFFSET:
            return False
        has_sequence = self.batches and header.base_sequence != NO_SEQUENCE
        return not has_sequence or is_before(self.batches[-1].last_sequence, header.base_sequence)

    def entry(self, producer_id: int) -> ProducerEntry:
        last = self.batches[-1] if self.batches else None
        is_of_its_time = last is None or last.timestamp_ms == self.last_timestamp
        return ProducerEntry(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            last_sequence=last.last_sequence if last else NO_SEQUENCE,
            last_offset=last.last_offset if last else NO_OFFSET,
            offset_delta=last.offset_delta if last else 0,
            last_timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=self.txn_first_offset,
            older_batches=self.batches[:-1],
            batch_timestamp=NO_TIME if last is None or is_of_its_time else last.timestamp_ms,
        )

    def check_invariants(self) -> None:
        assert len(self.batches) <= RETAINED_BATCHES, self.batches
        for batch in self.batches:
            assert batch.base_offset <= batch.last_offset, batch
        for earlier, later in zip(self.batches, self.batches[1:], strict=False):
            assert earlier.last_offset < later.base_offset, (earlier, later)


def _last_sequence(header: RecordBatchHeader) -> int:
    """Return the sequence of a batch's last record; sequences wrap from 2^31 - 1 to 0."""
    sequence = header.base_sequence
    if sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (sequence + header.last_offset_delta) & MAX_SEQUENCE


def _check_sequence(producer: _Producer, header: RecordBatchHeader) -> None:
    epoch, sequence = header.producer_epoch, header.base_sequence
    if producer.epoch == NO_PRODUCER_EPOCH:
        return
    if epoch > producer.epoch:
        if sequence != 0:
            raise error_for(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {epoch} (after {producer.epoch}) with sequence"
                f" {sequence}, expected 0",
            )
        return
    last = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
    expected = 0 if last == MAX_SEQUENCE else last + 1
    if sequence != expected:
        raise error_for(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} in epoch {epoch} sends sequence {sequence}, expected {expected}",
        )


def _stale_epoch(producer: _Producer, header: RecordBatchHeader) -> TidelogError:
    return error_for(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} sends epoch {header.producer_epoch}, the log has {producer.epoch}",
    )
