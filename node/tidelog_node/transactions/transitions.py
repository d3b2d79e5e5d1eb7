"""The transitions of a transactional id: pure functions from recorded metadata to the next.

They follow Kafka's TransactionCoordinator and TransactionMetadata, with these rules:

- InitProducerId raises the epoch, so that an older producer with the same transactional id is fenced. An exhausted
  epoch needs a new producer id. An open transaction is aborted first, or, with ``keep_prepared``, kept: the client then
  gets another producer, with which it ends the transaction, and the markers have the original one (KIP-939).
- A producer that repeats InitProducerId with its former epoch gets the same answer. An older producer is fenced, even
  while a transaction is open. Kafka aborts the open transaction for such a producer before it refuses the request.
- From transaction version 2 on, EndTxn raises the epoch (KIP-890). A request with the epoch before it is a repetition
  and gets the same answer. A request with the current epoch belongs to the next transaction.
- A transaction that times out, or whose producer is replaced, is aborted, and its producer's epoch rises by one. In
  version 2 the abort is an end like any other: the producer may repeat it, or call InitProducerId, and go on with the
  raised epoch unless a newer producer has come (KIP-588).
- Partitions and the end of a transaction are durable before their answer, and a prepared state is durable before any
  marker is written. The shard takes care of that.

A function returns the next metadata, or :data:`NEEDS_PRODUCER_ID` or :data:`IN_PROGRESS`, or raises the error of the
answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto
from typing import Final, Literal

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.transactions.requests import EndTxnRequest, InitProducerIdRequest
from tidelog_node.transactions.states import (
    EPOCH_BUMP_VERSION,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)


class Hindrance(Enum):
    """The reason why a request cannot be decided yet."""

    NEEDS_PRODUCER_ID = auto()
    """The transition needs a new producer id."""
    IN_PROGRESS = auto()
    """The markers of the previous transaction are being written (CONCURRENT_TRANSACTIONS)."""


NEEDS_PRODUCER_ID: Final = Hindrance.NEEDS_PRODUCER_ID
IN_PROGRESS: Final = Hindrance.IN_PROGRESS


def initialize(
    current: TransactionMetadata | None, request: InitProducerIdRequest, new_producer_id: int | None, wall_ms: int
) -> TransactionMetadata | Hindrance:
    """Return the metadata after InitProducerId. It takes over an open transaction, which the caller may abort instead.

    Raises:
        TidelogError: PRODUCER_FENCED.
    """
    if current is None:
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        return _initialized(request, Producer(new_producer_id, 0), wall_ms)
    check_expected(current, request)
    if current.state.is_prepared:
        return IN_PROGRESS
    if current.state is TransactionState.ONGOING:
        return _taken_over(current, new_producer_id, wall_ms)
    client, expected = current.producer, request.producer
    is_repeated = expected.id == client.id and expected.epoch == current.last_producer_epoch != NO_PRODUCER_EPOCH
    if is_repeated or _is_repeated_rotation(current, expected):
        last = current.last_producer_epoch
        return _initialized(request, client, wall_ms, previous_id=current.previous_producer_id, last_epoch=last)
    last = client.epoch if expected.id != NO_PRODUCER_ID else NO_PRODUCER_EPOCH
    if not client.is_exhausted:
        raised = Producer(client.id, client.epoch + 1)
        return _initialized(request, raised, wall_ms, previous_id=current.previous_producer_id, last_epoch=last)
    if new_producer_id is None:
        return NEEDS_PRODUCER_ID
    return _initialized(request, Producer(new_producer_id, 0), wall_ms, previous_id=client.id, last_epoch=last)


def check_expected(current: TransactionMetadata, request: InitProducerIdRequest) -> None:
    """Refuse a producer that a newer one has fenced (KIP-360).

    Raises:
        TidelogError: PRODUCER_FENCED.
    """
    expected, client = request.producer, current.client
    if expected.id == NO_PRODUCER_ID or expected == client or _is_repeated_rotation(current, expected):
        return
    if expected.id == client.id and expected.epoch == current.last_producer_epoch != NO_PRODUCER_EPOCH:
        return
    raise _fenced(request.transactional_id, expected, client)


def add_partitions(
    current: TransactionMetadata,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[TopicPartition],
    version: int,
    wall_ms: int,
) -> TransactionMetadata | Hindrance:
    """Return the metadata with more partitions in the open or a new transaction; ``current`` if it has them all.

    Raises:
        TidelogError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, or INVALID_TXN_STATE for a transaction that a client
            took over in order to end it.
    """
    check_producer(current, transactional_id, producer)
    if current.state.is_prepared:
        return IN_PROGRESS
    if current.is_taken_over:
        text = f"the prepared transaction of {transactional_id!r} can be committed or aborted, not continued"
        raise error_for(ErrorCode.INVALID_TXN_STATE, text)
    added = current.partitions.union(partitions)
    if current.state is TransactionState.ONGOING and added == current.partitions:
        return current
    return replace(
        current,
        state=TransactionState.ONGOING,
        partitions=added,
        started_ms=current.started_ms if current.state is TransactionState.ONGOING else wall_ms,
        updated_ms=wall_ms,
        client_version=version,
    )


def check_producer(current: TransactionMetadata, transactional_id: str, producer: Producer) -> None:
    """Refuse a request of any producer but the current one.

    Raises:
        TidelogError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    if producer.id != current.client.id:
        raise _wrong_mapping(transactional_id, producer, current)
    if producer.epoch != current.client.epoch:
        raise _fenced(transactional_id, producer, current.client)


def end(
    current: TransactionMetadata, request: EndTxnRequest, new_producer_id: int | None, wall_ms: int
) -> TransactionMetadata | Hindrance:
    """Return the prepared metadata after EndTxn, or ``current`` for a repeated request whose effect is complete.

    Raises:
        TidelogError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE.
    """
    if request.version < EPOCH_BUMP_VERSION:
        return _end_without_bump(current, request, wall_ms)
    is_repeated = _is_repeated_end(current, request.producer)
    if not is_repeated:
        check_producer(current, request.transactional_id, request.producer)
    if current.state.is_prepared:
        if not is_repeated:
            # With this epoch the client can begin its next transaction, and has nothing to end yet.
            raise _nothing_to_end(request)
        return IN_PROGRESS if request.committed == _is_commit(current) else _raise_illegal(current, request)
    if is_repeated and current.state is not TransactionState.ONGOING:
        is_done = current.state is not TransactionState.EMPTY and request.committed == _is_commit(current)
        return current if is_done else _raise_illegal(current, request)
    if request.committed and current.state is not TransactionState.ONGOING:
        _raise_illegal(current, request)
    if current.client.is_exhausted and new_producer_id is None:
        return NEEDS_PRODUCER_ID
    return _prepared(current, request, new_producer_id, wall_ms)


def abort_fenced(current: TransactionMetadata, version: int, wall_ms: int) -> TransactionMetadata:
    """Return the metadata after the coordinator fences the producer and aborts its open transaction."""
    client = current.client
    is_end = version >= EPOCH_BUMP_VERSION and client.epoch + 1 < MAX_PRODUCER_EPOCH
    next_producer = current.next_producer
    if current.is_taken_over:
        next_producer = Producer(next_producer.id, min(next_producer.epoch + 1, MAX_PRODUCER_EPOCH))
    return replace(
        current,
        state=TransactionState.PREPARE_ABORT,
        producer=Producer(current.producer.id, min(current.producer.epoch + 1, MAX_PRODUCER_EPOCH)),
        next_producer=next_producer,
        # No client gets the greatest epoch, so that the one before it cannot go on.
        last_producer_epoch=client.epoch if is_end else NO_PRODUCER_EPOCH,
        updated_ms=wall_ms,
        client_version=version,
    )


def complete(current: TransactionMetadata, wall_ms: int) -> TransactionMetadata:
    """Return the metadata after all partitions of a prepared transaction have its markers."""
    return replace(
        current,
        state=TransactionState.COMPLETE_COMMIT if _is_commit(current) else TransactionState.COMPLETE_ABORT,
        producer=current.client,
        next_producer=NO_PRODUCER,
        partitions=frozenset(),
        updated_ms=wall_ms,
    )


def _initialized(
    request: InitProducerIdRequest,
    producer: Producer,
    wall_ms: int,
    *,
    previous_id: int = NO_PRODUCER_ID,
    last_epoch: int = NO_PRODUCER_EPOCH,
) -> TransactionMetadata:
    return TransactionMetadata(
        producer,
        TransactionState.EMPTY,
        request.effective_timeout_ms,
        wall_ms,
        previous_producer_id=previous_id,
        last_producer_epoch=last_epoch,
    )


def _taken_over(
    current: TransactionMetadata, new_producer_id: int | None, wall_ms: int
) -> TransactionMetadata | Hindrance:
    client = current.client
    if client.is_exhausted and new_producer_id is None:
        return NEEDS_PRODUCER_ID
    taken = _successor(client, new_producer_id)
    return replace(current, next_producer=taken, last_producer_epoch=client.epoch, updated_ms=wall_ms)


def _successor(client: Producer, new_producer_id: int | None) -> Producer:
    if not client.is_exhausted:
        return Producer(client.id, client.epoch + 1)
    assert new_producer_id is not None
    return Producer(new_producer_id, 0)


def _prepared(
    current: TransactionMetadata, request: EndTxnRequest, new_producer_id: int | None, wall_ms: int
) -> TransactionMetadata:
    client, original = current.client, current.producer
    successor = _successor(client, new_producer_id)
    marker = Producer(original.id, min(original.epoch + 1, MAX_PRODUCER_EPOCH))
    return replace(
        current,
        state=TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT,
        producer=marker,
        next_producer=NO_PRODUCER if successor == marker else successor,
        previous_producer_id=current.previous_producer_id if successor.id == client.id else client.id,
        last_producer_epoch=client.epoch,
        # An abort without a partition has no start, but a completed transaction must have one.
        started_ms=current.started_ms if current.state is TransactionState.ONGOING else wall_ms,
        updated_ms=wall_ms,
        client_version=request.version,
    )


def _end_without_bump(
    current: TransactionMetadata, request: EndTxnRequest, wall_ms: int
) -> TransactionMetadata | Hindrance:
    """Process EndTxn of a client whose epoch stays, so that a repetition looks like the first request."""
    check_producer(current, request.transactional_id, request.producer)
    if current.state is TransactionState.ONGOING:
        return replace(
            current,
            state=TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT,
            updated_ms=wall_ms,
            client_version=0,
        )
    if current.state is TransactionState.EMPTY or request.committed != _is_commit(current):
        _raise_illegal(current, request)
    return IN_PROGRESS if current.state.is_prepared else current


def _is_repeated_end(current: TransactionMetadata, producer: Producer) -> bool:
    """Return whether a producer of version 2 has the epoch that preceded the latest end of a transaction.

    After an end that raised no epoch, the epoch before belongs to a producer that was fenced, although Kafka answers it
    with the current epoch. No client ends a transaction with the greatest epoch as the next one; that epoch fences the
    client before it.
    """
    if current.state in (TransactionState.ONGOING, TransactionState.EMPTY):
        return False
    if current.client_version < EPOCH_BUMP_VERSION or current.client.epoch == MAX_PRODUCER_EPOCH:
        return False
    if current.client.epoch == 0 and current.client.id != producer.id:
        return producer == (current.previous_producer_id, MAX_PRODUCER_EPOCH - 1)
    return producer == (current.client.id, current.client.epoch - 1)


def _is_repeated_rotation(current: TransactionMetadata, expected: Producer) -> bool:
    """Return whether a client repeats the request that gave it a new producer id."""
    return expected.id == current.previous_producer_id != NO_PRODUCER_ID and expected.is_exhausted


def _is_commit(current: TransactionMetadata) -> bool:
    return current.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def _raise_illegal(current: TransactionMetadata, request: EndTxnRequest) -> Literal[Hindrance.IN_PROGRESS]:
    verb = "committed" if request.committed else "aborted"
    text = f"the transaction of {request.transactional_id!r} cannot be {verb} in state {current.state.label}"
    raise error_for(ErrorCode.INVALID_TXN_STATE, text)


def _fenced(transactional_id: str, producer: Producer, current: Producer) -> TidelogError:
    text = f"{transactional_id!r} has producer {current.id} with epoch {current.epoch}, not epoch {producer.epoch}"
    return error_for(ErrorCode.PRODUCER_FENCED, text)


def _nothing_to_end(request: EndTxnRequest) -> TidelogError:
    epoch = request.producer.epoch
    text = f"the transaction of {request.transactional_id!r} before epoch {epoch} is still ending, and {epoch} has none"
    return error_for(ErrorCode.PRODUCER_FENCED, text)


def _wrong_mapping(transactional_id: str, producer: Producer, current: TransactionMetadata) -> TidelogError:
    text = f"{transactional_id!r} has producer id {current.client.id}, not {producer.id}"
    return error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
