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
from typing import TypeAlias, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_spark.sink.journal import Prepared, SinkState

MAX_SLOTS = 100
"""The open transactions of earlier attempts that one task passes over before it fails."""
MAX_AT_ONCE = 32
"""The transactions that a driver ends at the same time, one request each."""
_NAMED = 5
"""The transactional ids that an error names."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of a sink at one batch.

    ``run`` is new at each start of a query. A sink of a batch query has one run and one batch. With ``is_in_order``, a
    batch is complete before the next begins, as in Spark's streams.
    """

    sink: str
    run: str
    batch: int
    is_in_order: bool = True


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
    """List the transactional ids of the sink that have an open transaction, or a producer that has written nothing yet.

    Result: a tuple.
    """


@dataclass(frozen=True, slots=True)
class Describe:
    """Find the transactions of a committed batch that are over. Result: Described."""

    committed: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """The transactional ids of transactions that are committed, and of those that have ended otherwise.

    The latter were aborted, or their id was used again.
    """

    committed: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Fence the producers of transactional ids, and keep their open transactions. Result: a tuple of Prepared."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """Commit and abort transactions that were taken over, by their ids.

    Result: a tuple of the ids whose producer another one has fenced; then the caller takes over again.
    """

    committed: tuple[str, ...]
    aborted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """The transactions that a driver has ended: the numbers of committed and aborted ones.

    ``ended`` are the ids of transactions of the batch that were over before, and are not known to be committed.
    """

    committed: int = 0
    aborted: int = 0
    ended: tuple[str, ...] = ()


Command: TypeAlias = ReadState | Append | Begin | Write | Discard | ListOpen | Describe | TakeOver | Complete
Result: TypeAlias = SinkState | Prepared | Described | tuple[str, ...] | tuple[Prepared, ...] | bool | None
T = TypeVar("T")
Steps: TypeAlias = Generator[Command, Result, T]


def write_task(attempt: Attempt, task_id: str) -> Steps[Prepared | None]:
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


def commit_batch(attempt: Attempt, prepared: tuple[Prepared, ...]) -> Steps[Completion]:
    """Commit a batch with the transactions of its tasks, all or none; do nothing new if it is committed already.

    Raises:
        TidelogError: FENCED_INSTANCE_ID if another run owns the sink; INVALID_TXN_STATE if somebody has ended a
            transaction of the batch after it was prepared.
    """
    is_new = False
    while True:
        state = yield from _read()
        is_owner, is_committed = state.owner == attempt.run, state.has_committed(attempt.batch)
        if is_owner and is_committed:
            break
        if attempt.run in state.retired or not (is_owner or is_committed):
            raise _fenced(attempt, state)
        if is_committed:
            # A run that repeats a committed batch completes what the run before it may have left open.
            yield Append(state.claimed(attempt.run))
            continue
        if not attempt.is_in_order:
            yield from _complete_earlier(attempt, state)
        is_new = True
        yield Append(state.decided(attempt.run, attempt.batch, prepared))
    completion = yield from _complete(attempt, state, is_new=is_new)
    if is_new and completion.ended:
        raise _ended(attempt, completion.ended)
    return completion


def abort_batch(attempt: Attempt) -> Steps[Completion]:
    """End the run and abort the transactions of its batch; complete the batch instead if it is committed already."""
    while True:
        state = yield from _read()
        if state.has_committed(attempt.batch) or attempt.run in state.retired:
            break
        # The record of a commit whose outcome is unknown may still arrive: this one makes it invalid.
        yield Append(state.without(attempt.run))
    if state.owner in (None, attempt.run):
        return (yield from _complete(attempt, state))
    return Completion()


def abandon_sink(sink: str, operator: str) -> Steps[Completion]:
    """End the run that owns a sink, complete its last committed batch, and abort all its other transactions.

    A driver of the run can write no more. The next run continues after the last committed batch. ``operator`` stands
    for a run in errors.

    Raises:
        TidelogError: FENCED_INSTANCE_ID if a run has claimed the sink meanwhile.
    """
    while True:
        state = yield from _read(is_current=True)
        if state.owner is None:
            break
        yield Append(state.without(state.owner))
    attempt = Attempt(sink, operator, -1 if state.batch is None else state.batch, is_in_order=False)
    return (yield from _complete(attempt, state))


def _own(attempt: Attempt) -> Steps[bool]:
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


def _begin(task_id: str) -> Steps[None]:
    for slot in range(MAX_SLOTS):
        if (yield Begin(task_id if slot == 0 else f"{task_id}.{slot}")):
            return
    text = f"{task_id} and the next {MAX_SLOTS - 1} transactional ids all have open transactions of earlier attempts"
    raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS, text)


def _check_is_current(attempt: Attempt) -> Steps[None]:
    state = yield from _read()
    if state.owner != attempt.run or state.has_committed(attempt.batch):
        raise _fenced(attempt, state)


def _complete(attempt: Attempt, decided: SinkState, *, is_new: bool = False) -> Steps[Completion]:
    """End all open transactions of the sink: commit those of the last committed batch, and abort the others.

    Attempts that have begun and not yet written are fenced. Those that begin later find the batch committed.

    ``is_new`` says that this driver has just committed the batch, so nobody else was to end its transactions. Later, an
    earlier driver may have ended them, and an application that repeats no batch has used their ids again.
    """
    aborted = 0
    ended: tuple[str, ...] = ()
    committed: set[str] = set()
    own = {each.transactional_id for each in decided.committed}
    while True:
        described = Described() if is_new else (yield from _describe(decided.committed))
        if attempt.is_in_order and attempt.batch == decided.batch:
            # A task that goes on after its end may have begun again with an id that this driver has committed.
            ended = tuple(dict.fromkeys((*ended, *(name for name in described.ended if name not in committed))))
        opened = yield ListOpen()
        assert isinstance(opened, tuple)
        is_over = {*described.committed, *described.ended}
        pending = [each.transactional_id for each in decided.committed if each.transactional_id not in is_over]
        pending += [str(name) for name in opened if name not in own]
        is_fenced = False
        for first in range(0, len(pending), MAX_AT_ONCE):
            part = yield from _end(attempt, decided, tuple(pending[first : first + MAX_AT_ONCE]))
            committed.update(part.committed)
            aborted += len(part.aborted)
            is_fenced = is_fenced or bool(part.fenced)
            ended += part.missing if is_new else ()
        if not is_fenced:
            return Completion(len(committed), aborted, ended)
        is_new = False


def _complete_earlier(attempt: Attempt, decided: SinkState) -> Steps[None]:
    """Commit what is left of the batch before, which its application has not repeated. Leave all else as it is."""
    pending = tuple(each.transactional_id for each in decided.committed)
    while pending:
        part = yield from _end(attempt, decided, pending[:MAX_AT_ONCE], aborts_others=False)
        pending = (*part.fenced, *pending[MAX_AT_ONCE:])


@dataclass(frozen=True, slots=True)
class _Part:
    """Transactional ids whose transactions were ended; those without the transaction of the batch; and those of which
    another producer has fenced this driver's.
    """

    committed: tuple[str, ...]
    aborted: tuple[str, ...]
    missing: tuple[str, ...]
    fenced: tuple[str, ...]


def _end(attempt: Attempt, decided: SinkState, names: tuple[str, ...], *, aborts_others: bool = True) -> Steps[_Part]:
    kept = yield TakeOver(names)
    assert isinstance(kept, tuple)
    state = yield from _read(is_current=True)
    if state.version != decided.version:
        raise _fenced(attempt, state)
    own = {each.transactional_id: each for each in decided.committed}
    found = {each.transactional_id: each for each in kept if isinstance(each, Prepared)}
    committed = tuple(name for name in found if found[name] == own.get(name))
    aborted = tuple(name for name in found if name not in committed) if aborts_others else ()
    fenced = yield Complete(committed, aborted)
    assert isinstance(fenced, tuple)
    return _Part(
        tuple(name for name in committed if name not in fenced),
        tuple(name for name in aborted if name not in fenced),
        tuple(name for name in names if name in own and name not in committed),
        tuple(map(str, fenced)),
    )


def _describe(committed: tuple[Prepared, ...]) -> Steps[Described]:
    if not committed:
        return Described()
    described = yield Describe(committed)
    assert isinstance(described, Described)
    return described


def _read(*, is_current: bool = False) -> Steps[SinkState]:
    state = yield ReadState(is_current)
    assert isinstance(state, SinkState)
    return state


def _fenced(attempt: Attempt, state: SinkState) -> TidelogError:
    text = (
        f"run {attempt.run} can no longer write batch {attempt.batch} of sink {attempt.sink}: the last committed batch "
        f"is {state.batch}, and the sink belongs to {state.owner or 'no run'}"
    )
    return error_for(ErrorCode.FENCED_INSTANCE_ID, text)


def _ended(attempt: Attempt, transactional_ids: tuple[str, ...]) -> TidelogError:
    named = ", ".join(transactional_ids[:_NAMED]) + (", ..." if len(transactional_ids) > _NAMED else "")
    text = (
        f"batch {attempt.batch} of sink {attempt.sink} is not whole: {len(transactional_ids)} of its transactions were "
        f"ended by somebody else after they were prepared, and their rows are lost: {named}"
    )
    return error_for(ErrorCode.INVALID_TXN_STATE, text)
