"""The parts of a history about Kafka's transactions: members of ``txn`` operations, and notes.

One ``txn`` operation is one transaction of a producer, from its beginning to its commit or abort. It is ``ok`` if it
was committed, ``fail`` if it certainly was not (the producer aborted it, or died before it asked for the commit),
``info`` otherwise. Its value has the sends, already in the invocation. Further members of the line::

    transactional_id  the id, a string; an operation without it is not of this workload
    producer          the number of the producer instance; each one initializes once
    from              [[key, offset], ...]: the consumed record behind each send, in order; absent without any
    consumed          {key: offset}: the offsets that the transaction commits for the group, each after its last record
    committing        the time (nanoseconds of the history) just before the first request of the commit; in the
                      completion; absent if the commit was never requested

Notes are lines of the process ``transactions``, of type ``info``::

    f            value
    initialized  {"transactional_id": "t", "producer": 3, "since": 120}: the producer initialized its transactions at
                 some moment between ``since`` and the note, and so fenced earlier ones
    started      {"offsets": {key: offset}}: the offsets of the group before its members started
    fetched      {"offsets": {key: offset}}: these are the stable offsets of the group, as somebody was told; null: none
    settled      {"limit_s": 70, "behind": {key: [last stable offset, high watermark]}}: all producers have ended, and
                 the partitions were watched for up to the limit; those behind still had open transactions
    ended        {"offsets": {key: offset}}: the final offsets of the group; null: none
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog_chaos.history import MOST, TRANSACTIONS, InvalidHistoryError, Op, Process, shown

NOTHING: Final = -1
"""The offset of a key without a committed one."""

Place = tuple[str, int]
"""A key and an offset."""


@dataclass(frozen=True, slots=True)
class Members:
    """The further members of a ``txn`` operation."""

    transactional_id: str
    producer: int
    sources: Sequence[Place]
    consumed: Mapping[str, int]
    committing_ns: int | None


@dataclass(frozen=True, slots=True)
class Initialized:
    """A producer's initialization, at some moment from ``since_ns`` to the note."""

    op: Op
    producer: int
    since_ns: int


@dataclass(slots=True)
class TransactionNotes:
    """The parts of a history that concern transactions."""

    members: dict[int, Members] = field(default_factory=dict)
    """The members of each transaction, by the index of its completion, or of an invocation that never completed."""
    initialized: dict[str, list[Initialized]] = field(default_factory=dict)
    """The initializations of each transactional id, in order of the notes."""
    started: Mapping[str, int] = field(default_factory=dict)
    """The offsets of the group before its members started."""
    fetched: list[tuple[Op, Mapping[str, int]]] = field(default_factory=list)
    settled: Op | None = None
    settled_position: int = 0
    """The number of lines before ``settled``."""
    behind: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ended: tuple[Op, Mapping[str, int]] | None = None

    def __bool__(self) -> bool:
        notes = (self.started, self.fetched, self.settled, self.ended)
        return bool(self.members or self.initialized or any(notes))

    def taking(self, ops: Iterable[Op]) -> Iterator[Op]:
        """Yield a history unchanged, and collect its parts.

        Raises:
            InvalidHistoryError: A part is malformed; the message names its index.
        """
        pending: dict[Process, Op] = {}
        for position, op in enumerate(ops):
            try:
                if op.process == TRANSACTIONS:
                    self._take_note(op, position)
                elif op.f == "txn":
                    self._take_operation(op, pending)
            except (ValueError, TypeError, KeyError, AttributeError):
                what = f"is not what is noted of transactions as {op.f}"
                found = op.value if op.process == TRANSACTIONS else dict(op.extra)
                raise InvalidHistoryError(f"index {op.index}: {shown(found)} {what}", index=op.index) from None
            yield op

    def _take_operation(self, op: Op, pending: dict[Process, Op]) -> None:
        if op.type == "invoke":
            pending[op.process] = op
            extra = op.extra
        else:
            invocation = pending.pop(op.process, None)
            extra = op.extra if invocation is None else {**invocation.extra, **op.extra}
            if invocation is not None:
                self.members.pop(invocation.index, None)
        if "transactional_id" in extra:
            self.members[op.index] = _members(extra, op)

    def _take_note(self, op: Op, position: int) -> None:
        value = op.value
        if op.f == "initialized":
            found = Initialized(op, int(value["producer"]), int(value["since"]))
            self.initialized.setdefault(str(value["transactional_id"]), []).append(found)
        elif op.f == "started":
            self.started = _offsets(value["offsets"])
        elif op.f == "fetched":
            self.fetched.append((op, _offsets(value["offsets"])))
        elif op.f == "settled":
            self.behind = {str(key): (int(stable), int(high)) for key, (stable, high) in value["behind"].items()}
            self.settled, self.settled_position = op, position
        elif op.f == "ended":
            self.ended = (op, _offsets(value["offsets"]))


def _members(extra: Mapping[str, Any], op: Op) -> Members:
    sources = [(str(key), int(offset)) for key, offset in extra.get("from", ())]
    if sources and len(sources) != len(op.value or ()):
        raise ValueError
    committing = extra.get("committing")
    return Members(
        str(extra["transactional_id"]),
        int(extra["producer"]),
        sources,
        _offsets(extra.get("consumed", {})),
        None if committing is None else int(committing),
    )


def _offsets(offsets: Mapping[str, Any]) -> dict[str, int]:
    found = {str(key): NOTHING if offset is None else int(offset) for key, offset in offsets.items()}
    if not all(NOTHING <= offset <= MOST for offset in found.values()):
        raise ValueError
    return found
