"""The notes of a history about its consumer group, in addition to the operations of the members.

The notes are lines of the process ``group``, of type ``info``. ``member`` is the process that is the member,
``generation`` its generation, or its epoch in the protocol of KIP-848; -1 if it is not a member::

    f          value
    group      {...}: the settings of the group; with ``"reorders_commits": true`` a member may repeat an unanswered
               commit after a later one
    assigned   {"member": 3, "generation": 5, "keys": [...]}: the member was assigned these partitions
    revoked    the same: it has finished its work before giving these up
    lost       the same: it was told that these may belong to another member
    holds      {"member": 3, "generation": 5}: it is in this generation now, with all its partitions
    gone       {"member": 3}: it has stopped
    committed  {"by": 3, "since": 120, "offsets": {key: offset}}: these were committed at some moment between ``since``
               (nanoseconds of the history) and the note; null: there was no commit
    logged     {"offsets": [[key, offset], ...]}: the next commits in the group's log, in order; null: deleted
    drained    {"ends": {key: offset}, "logged": 250}: the group has committed all of this and nothing is sent any more;
               earlier notes have the log until the time ``logged``
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog_chaos.history import GROUP, MOST, InvalidHistoryError, Op, Process, shown
from tidelog_chaos.verdict import Case

CLAIMS: Final = frozenset({"assigned", "revoked", "lost", "holds", "gone"})
NOTHING: Final = -1
"""The generation of a process that is not a member, and the offset of a key without a commit."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's note about its partitions."""

    op: Op
    member: Process
    generation: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit at some moment from ``since_ns`` to the note."""

    op: Op
    by: Process
    since_ns: int
    offsets: Mapping[str, int]


@dataclass(slots=True)
class GroupNotes:
    """All notes of a history, each kind in order."""

    claims: list[Claim] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    logged: list[tuple[Op, str, int]] = field(default_factory=list)
    """The note, the key and the offset of each commit in the log."""
    drained: Op | None = None
    logged_ns: int = 0
    """The log is known up to this time; 0: not at all."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reorders_commits(self) -> bool:
        """True if a commit of a member may follow a later one of its own."""
        return bool(self.settings.get("reorders_commits"))

    def __bool__(self) -> bool:
        return bool(self.claims or self.committed or self.logged or self.drained)

    def taking(self, ops: Iterable[Op]) -> Iterator[Op]:
        """Yield a history unchanged, and collect its notes.

        Raises:
            InvalidHistoryError: A note is malformed; the message names its index.
        """
        for op in ops:
            if op.process == GROUP:
                try:
                    self._take(op)
                except (ValueError, TypeError, KeyError, AttributeError):
                    text = f"index {op.index}: {shown(op.value)} is not what is noted of a group as {op.f}"
                    raise InvalidHistoryError(text, index=op.index) from None
            yield op

    def _take(self, op: Op) -> None:
        if op.f in CLAIMS:
            keys = tuple(str(key) for key in op.value.get("keys", ()))
            self.claims.append(Claim(op, op.value["member"], int(op.value.get("generation", NOTHING)), keys))
        elif op.f == "committed":
            self.committed.append(Committed(op, op.value["by"], int(op.value["since"]), _offsets(op.value["offsets"])))
        elif op.f == "logged":
            for key, offset in op.value["offsets"]:
                [(name, found)] = _offsets({key: offset}).items()
                self.logged.append((op, name, found))
        elif op.f == "drained":
            _offsets(op.value["ends"])
            self.drained, self.logged_ns = op, int(op.value.get("logged", 0))
        elif op.f == "group":
            self.settings = dict(op.value)


def note_case(op: Op, keys: Iterable[str]) -> Case:
    """Return a note as its line of the history, with these keys only, for people."""
    wanted = set(keys)
    value = {name: _without_others(members, wanted) for name, members in op.value.items()}
    return {"index": op.index, "process": op.process, "type": op.type, "f": op.f, "value": value, "time": op.time_ns}


def _without_others(members: Any, wanted: set[str]) -> Any:
    if isinstance(members, dict):
        return {key: offset for key, offset in members.items() if key in wanted}
    if isinstance(members, list):
        return [entry for entry in members if (entry[0] if isinstance(entry, list) else entry) in wanted]
    return members


def _offsets(offsets: Mapping[str, Any]) -> dict[str, int]:
    found = {str(key): NOTHING if offset is None else int(offset) for key, offset in offsets.items()}
    if not all(NOTHING <= offset <= MOST for offset in found.values()):
        raise ValueError
    return found
