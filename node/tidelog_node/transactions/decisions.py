"""The decisions on requests that change or verify a transaction: the next metadata and the response, or a wait.

:mod:`.transitions` has the rules of a transactional id. This module chooses the transition of each request and builds
its response. It changes nothing.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.transactions import transitions
from tidelog_node.transactions.entries import ActingRequest, Entry
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionResponse,
)
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import NO_PRODUCER, TransactionMetadata, TransactionState


@dataclass(frozen=True, slots=True)
class Decision:
    """The effect of a request."""

    after: TransactionMetadata | None
    """The metadata to write; None if the state stays as it is."""
    response: TransactionResponse | None
    """The response when everything is durable. None if the request waits, for the end of what is written."""


def decide(
    entry: Entry, request: ActingRequest, settings: TransactionSettings, wall_ms: int
) -> Decision | transitions.Hindrance:
    """Return the effect of a request, or the reason why it must wait.

    Raises:
        TidelogError: The error of the response.
    """
    match request:
        case InitProducerIdRequest():
            return _initialize(entry, request, settings, wall_ms)
        case AddPartitionsRequest():
            return _add_partitions(entry, request, wall_ms)
        case EndTxnRequest():
            return _end(entry, request, wall_ms)


def _initialize(
    entry: Entry, request: InitProducerIdRequest, settings: TransactionSettings, wall_ms: int
) -> Decision | transitions.Hindrance:
    _check_timeout(request, settings)
    current = entry.metadata
    if current is not None and current.state is TransactionState.ONGOING and not request.keep_prepared:
        transitions.check_expected(current, request)
        return Decision(transitions.abort_fenced(current, settings.version, wall_ms), None)
    after = transitions.initialize(current, request, entry.new_producer_id, wall_ms)
    if isinstance(after, transitions.Hindrance):
        return after
    ongoing = after.producer if after.is_taken_over else NO_PRODUCER
    return Decision(after, InitProducerIdResponse(after.client, ongoing))


def _add_partitions(entry: Entry, request: AddPartitionsRequest, wall_ms: int) -> Decision | transitions.Hindrance:
    current = _known(entry, request.transactional_id)
    if request.verify_only:
        return _verify(request, current)
    after = transitions.add_partitions(
        current, request.transactional_id, request.producer, request.partitions, request.version, wall_ms
    )
    if isinstance(after, transitions.Hindrance):
        return after
    return Decision(None if after is current else after, AddPartitionsResponse())


def _verify(request: AddPartitionsRequest, current: TransactionMetadata) -> Decision | transitions.Hindrance:
    transitions.check_producer(current, request.transactional_id, request.producer)
    if current.state.is_prepared:
        return transitions.IN_PROGRESS
    missing = [p for p in request.partitions if p not in current.partitions]
    errors = {p: _not_added(request.transactional_id, p) for p in missing}
    return Decision(None, AddPartitionsResponse(errors=errors))


def _end(entry: Entry, request: EndTxnRequest, wall_ms: int) -> Decision | transitions.Hindrance:
    current = _known(entry, request.transactional_id)
    after = transitions.end(current, request, entry.new_producer_id, wall_ms)
    if isinstance(after, transitions.Hindrance):
        return after
    return Decision(None if after is current else after, EndTxnResponse(after.client))


def _check_timeout(request: InitProducerIdRequest, settings: TransactionSettings) -> None:
    if request.is_two_phase:
        if not settings.two_phase_commit_enable:
            text = "transaction.two.phase.commit.enable is false"
            raise error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        return
    limit_ms = settings.transaction_max_timeout_ms
    if not 0 < request.timeout_ms <= limit_ms:
        text = f"transaction.timeout.ms {request.timeout_ms} must be from 1 to transaction.max.timeout.ms {limit_ms}"
        raise error_for(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)


def _known(entry: Entry, transactional_id: str) -> TransactionMetadata:
    if entry.metadata is None:
        text = f"transactional id {transactional_id!r} has no producer id"
        raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    return entry.metadata


def _not_added(transactional_id: str, partition: tuple[str, int]) -> TidelogError:
    text = f"{partition[0]}-{partition[1]} is not in the transaction of {transactional_id!r}"
    return error_for(ErrorCode.TRANSACTION_ABORTABLE, text)
