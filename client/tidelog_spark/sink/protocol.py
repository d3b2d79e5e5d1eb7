"""The two-phase commit of a batch: what each task and the driver do, step by step. Pure.

Each function is a generator: it yields a command, receives its result, and may be abandoned at any command, as a killed
process abandons it. docs/decisions has the rules and why they hold. In short:

- A task writes only for the run that owns the sink, and never ends a transaction that it finds.
- A batch is committed by one valid record of the journal, which has the transactions of all tasks. It is valid only if
  the run owns the sink and the batch was not committed before.
- Only a driver ends transactions, after the journal has decided, and only while no other run has claimed the sink: it
  takes them over first and reads the current state then, so that a later claim's transactions are never among them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_spark.sink.journal import Prepared, SinkState

MAX_SLOTS = 100
"""The open transactions of earlier attempts that one task passes over before it fails."""
MAX_AT_ONCE = 32
"""The transactions that a driver ends at the same time, each with a connection of its own."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of a sink at one batch.

    ``run`` is new at each start of a query. A sink of a batch query has one run and one batch.
    """

    sink: str
    run: str
    batch: int


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the sink's state. Result: SinkState.

    A leader that has been replaced without its knowledge may give an old state. ``is_current`` excludes that, by a
    record that is appended first and read back.
    """

    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Append a state to the journal. Result: None. Only reading tells whether it is valid."""

    state: SinkState


@dataclass(frozen=True, slots=True)
class Begin:
    """Fence the other producers of a transactional id, and begin a transaction unless one is open.

    Result: False if one is open. It is kept.
    """

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Write:
    """Write the task's rows in the transaction that was begun, and prepare it. Result: Prepared."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Abort the transaction that the task has written itself. Result: None."""


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the transactional ids of the sink that have an open transaction. Result: a tuple."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Fence the producers of transactional ids, and keep their open transactions. Result: None."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """Commit the taken over transactions that are in ``committed``, and abort the others.

    Result: False if another producer has fenced this one; then the caller takes over again.
    """

    committed: tuple[Prepared, ...]


Command: TypeAlias = ReadState | Append | Begin | Write | Discard | ListOpen | TakeOver | Complete
Result: TypeAlias = SinkState | Prepared | tuple[str, ...] | bool | None
Steps: TypeAlias = Generator[Command, Result, None]


def write_task(attempt: Attempt, task_id: str) -> Generator[Command, Result, Prepared | None]:
    """Write the rows of a task in a prepared transaction, and return it; None if the batch is committed already.

    ``task_id`` is the transactional id of the task's first slot; it differs between attempts at the same rows.

    Raises:
        TidelogError: FENCED_INSTANCE_ID if another run owns the sink, or the batch was committed meanwhile.
    """
    if not (yield from _own(attempt)):
        return None
    yield from _begin(task_id)
    yield from _check_is_current(attempt)
    prepared = yield Write()
    assert isinstance(prepared, Prepared)
    try:
        yield from _check_is_current(attempt)
    except TidelogError:
        # The driver may have looked for open transactions before this one was open.
        yield Discard()
        raise
    return prepared


def commit_batch(attempt: Attempt, prepared: tuple[Prepared, ...]) -> Steps:
    """Commit a batch with the transactions of its tasks, all or none; do nothing new if it is committed already.

    Raises:
        TidelogError: FENCED_INSTANCE_ID if another run owns the sink.
    """
    while True:
        state = yield from _read()
        is_owner, is_committed = state.owner == attempt.run, state.has_committed(attempt.batch)
        if is_owner and is_committed:
            break
        if attempt.run in state.retired or not (is_owner or is_committed):
            raise _fenced(attempt, state)
        # A run that repeats a committed batch completes what the run before it may have left open.
        next_state = state.claimed(attempt.run) if is_committed else state.decided(attempt.run, attempt.batch, prepared)
        yield Append(next_state)
    yield from _complete(attempt, state)


def abort_batch(attempt: Attempt) -> Steps:
    """End the run and abort the transactions of its batch; complete the batch instead if it is committed already."""
    while True:
        state = yield from _read()
        if state.has_committed(attempt.batch) or attempt.run in state.retired:
            break
        # The record of a commit whose outcome is unknown may still arrive: this one makes it invalid.
        yield Append(state.without(attempt.run))
    if state.owner in (None, attempt.run):
        yield from _complete(attempt, state)


def _own(attempt: Attempt) -> Generator[Command, Result, bool]:
    """Make the run the owner. Return False if the batch is committed already."""
    while True:
        state = yield from _read()
        if state.has_committed(attempt.batch):
            return False
        if state.owner == attempt.run:
            return True
        if attempt.run in state.retired:
            raise _fenced(attempt, state)
        yield Append(state.claimed(attempt.run))


def _begin(task_id: str) -> Steps:
    for slot in range(MAX_SLOTS):
        if (yield Begin(task_id if slot == 0 else f"{task_id}.{slot}")):
            return
    text = f"{task_id} and the next {MAX_SLOTS - 1} transactional ids all have open transactions of earlier attempts"
    raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS, text)


def _check_is_current(attempt: Attempt) -> Steps:
    state = yield from _read()
    if state.owner != attempt.run or state.has_committed(attempt.batch):
        raise _fenced(attempt, state)


def _complete(attempt: Attempt, decided: SinkState) -> Steps:
    """End all open transactions of the sink: commit those of the last committed batch, and abort the others."""
    while True:
        opened = yield ListOpen()
        assert isinstance(opened, tuple)
        ids = tuple(dict.fromkeys((*(each.transactional_id for each in decided.committed), *opened)))
        is_complete = True
        for first in range(0, len(ids), MAX_AT_ONCE):
            yield TakeOver(ids[first : first + MAX_AT_ONCE])
            state = yield from _read(is_current=True)
            if state.version != decided.version:
                raise _fenced(attempt, state)
            is_complete = bool((yield Complete(decided.committed))) and is_complete
        if is_complete:
            return


def _read(*, is_current: bool = False) -> Generator[Command, Result, SinkState]:
    state = yield ReadState(is_current)
    assert isinstance(state, SinkState)
    return state


def _fenced(attempt: Attempt, state: SinkState) -> TidelogError:
    text = (
        f"run {attempt.run} can no longer write batch {attempt.batch} of sink {attempt.sink}: the last committed batch "
        f"is {state.batch}, and the sink belongs to {state.owner or 'no run'}"
    )
    return error_for(ErrorCode.FENCED_INSTANCE_ID, text)
