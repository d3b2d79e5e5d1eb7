"""The verification of a transaction before its first batch in one partition (KIP-890). Pure: no I/O.

A transactional batch of a producer without an open transaction would begin one. Nobody would end it if the transaction
coordinator did not know of the partition, so the leader asks the coordinator before the append. While it waits, the
transaction may end. The rules are those of Kafka's VerificationStateEntry:

- A question begins with a guard. Questions about one producer and epoch have the same guard until it is dropped.
- Every transactional batch of the producer in the log, data or marker, drops its guards: the answer to an earlier
  question proves nothing about a later transaction. From the first batch on, the log itself knows the transaction.
- A batch that begins a transaction needs the current guard, or INVALID_TXN_STATE.
- Of the batches with one guard, that with the lowest sequence is appended first, or OUT_OF_ORDER_SEQUENCE_NUMBER. A
  later one in its place would make it out of order forever.
- With transaction version 2, a producer that the partition does not know begins with sequence 0.
- A guard that is never used expires with the producers. A partition has at most MAX_GUARDED producers with guards;
  the oldest one's are dropped.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchHeader

MAX_SEQUENCE = 2**31 - 1
NO_GUARD = 0
"""The guard of a batch that needs no question, because its transaction is open or it is not transactional."""
MAX_GUARDED = 10_000


def is_before(sequence: int, other: int) -> bool:
    """Return whether a sequence comes before another one; 0 follows 2^31 - 1."""
    return 0 < (other - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


class _Question:
    """The questions about one producer in one epoch; ``guard`` is unique in the partition."""

    __slots__ = ("began_ms", "begins_at_zero", "guard", "lowest_sequence")

    def __init__(self, guard: int, began_ms: int, sequence: int) -> None:
        self.guard = guard
        self.began_ms = began_ms
        self.lowest_sequence = sequence
        self.begins_at_zero = False


class Verifications:
    """The questions of one partition's leader. Calls follow the order of the log."""

    __slots__ = ("_last_guard", "_questions")

    def __init__(self) -> None:
        self._questions: dict[int, dict[int, _Question]] = {}
        """By producer id and epoch, the producer with the oldest first question first."""
        self._last_guard = NO_GUARD

    def __len__(self) -> int:
        return len(self._questions)

    def begin(self, header: RecordBatchHeader, begins_at_zero: bool, now_ms: int) -> int:
        """Return the guard of a question about a batch that would begin a transaction.

        ``begins_at_zero`` requires the first sequence of an unknown producer to be 0.
        """
        by_epoch = self._questions.get(header.producer_id)
        if by_epoch is None:
            if len(self._questions) >= MAX_GUARDED:
                del self._questions[next(iter(self._questions))]
            by_epoch = self._questions[header.producer_id] = {}
        question = by_epoch.get(header.producer_epoch)
        if question is None:
            self._last_guard += 1
            question = _Question(self._last_guard, now_ms, header.base_sequence)
            by_epoch[header.producer_epoch] = question
        if is_before(header.base_sequence, question.lowest_sequence):
            question.lowest_sequence = header.base_sequence
        question.begins_at_zero = question.begins_at_zero or begins_at_zero
        return question.guard

    def check(self, header: RecordBatchHeader, guard: int, is_known: bool) -> None:
        """Check whether a batch may begin a transaction. ``is_known`` is whether the partition knows the producer.

        Raises:
            TidelogError: INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        question = self._questions.get(header.producer_id, {}).get(header.producer_epoch)
        who = f"producer {header.producer_id} in epoch {header.producer_epoch}"
        if question is None or question.guard != guard:
            text = f"{who} has no transaction here, and none was verified since its last one ended"
            raise error_for(ErrorCode.INVALID_TXN_STATE, text)
        first = 0 if question.begins_at_zero and not is_known else question.lowest_sequence
        if is_before(first, header.base_sequence):
            text = f"{who} begins a transaction with sequence {header.base_sequence}, expected {first}"
            raise error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)

    def drop(self, producer_id: int) -> None:
        """Drop the guards of a producer after a transactional batch of it is in the log."""
        self._questions.pop(producer_id, None)

    def expire(self, limit_ms: int) -> None:
        """Drop the guards of questions that began at ``limit_ms`` or before."""
        for producer_id, by_epoch in list(self._questions.items()):
            if all(question.began_ms <= limit_ms for question in by_epoch.values()):
                del self._questions[producer_id]

    def clear(self) -> None:
        """Drop all guards."""
        self._questions.clear()
