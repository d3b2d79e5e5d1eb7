"""The states of a transactional producer, and its calls in progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tidelog.producer.core.transaction_requests import GroupMember, OffsetToCommit, PreparedTransaction
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError


class State(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED_TRANSACTION = auto()
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


STATE_TEXTS = {
    State.UNINITIALIZED: "the producer has no producer id: call init_transactions() first",
    State.INITIALIZING: "the producer is waiting for its producer id",
    State.READY: "there is no open transaction: call begin_transaction() first",
    State.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    State.PREPARED_TRANSACTION: "the transaction is prepared: it can only be committed or aborted",
    State.COMMITTING_TRANSACTION: "the transaction is being committed",
    State.ABORTING_TRANSACTION: "the transaction is being aborted",
    State.ABORTABLE_ERROR: "the transaction has failed: abort it",
}


class Action(Enum):
    """A call that takes time, with its name in the producer's API."""

    INITIALIZE = "init_transactions()"
    SEND_OFFSETS = "send_offsets_to_transaction()"
    PREPARE = "prepare_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"


@dataclass(slots=True, eq=False)
class Operation:
    """A call in progress. When ``is_done``, ``error`` is its outcome, and ``prepared`` the result of PREPARE.

    ``last_error`` is the latest error of a request that is repeated.
    """

    action: Action
    offsets: tuple[GroupMember, tuple[OffsetToCommit, ...]] | None = None
    is_done: bool = False
    error: TidelogError | None = None
    last_error: TidelogError | None = None
    prepared: PreparedTransaction | None = None


def conflict(action: Action) -> TidelogError:
    """Return the error of a call while another one is in progress."""
    text = f"{action.value} has not completed: call it again until it has"
    return TidelogError(KafkaError(ErrorCode._CONFLICT, text, retriable=True))
