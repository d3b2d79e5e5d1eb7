"""Writes into the history what a group does: who has which partitions, and what is committed.

Notes of the process ``group``, whose form and meaning :mod:`tidelog_chaos.checker.group_notes` has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog_chaos.history import GROUP, HistoryWriter


class GroupNotes:
    """Any thread may call; ``member`` is the process that is a member of the group."""

    def __init__(self, history: HistoryWriter) -> None:
        self._history = history

    def now_ns(self) -> int:
        """Return the time of the history."""
        return self._history.now_ns()

    def formed(self, settings: Mapping[str, Any]) -> None:
        """Members join a group with these settings."""
        self._note("group", dict(settings))

    def assigned(self, member: int, generation: int, keys: Iterable[str]) -> None:
        """A member was given partitions."""
        self._note("assigned", _claim(member, generation, keys))

    def revoked(self, member: int, generation: int, keys: Iterable[str]) -> None:
        """A member has done what it does before it gives partitions up."""
        self._note("revoked", _claim(member, generation, keys))

    def lost(self, member: int, generation: int, keys: Iterable[str]) -> None:
        """A member was told that partitions may be another's."""
        self._note("lost", _claim(member, generation, keys))

    def holds(self, member: int, generation: int) -> None:
        """A member is in a generation now, with the partitions that it has."""
        self._note("holds", {"member": member, "generation": generation})

    def gone(self, member: int) -> None:
        """A member does nothing any more."""
        self._note("gone", {"member": member})

    def committed(self, by: int | str, since_ns: int, offsets: Mapping[str, int | None]) -> None:
        """Who was told so knows that these were committed at some time from ``since_ns`` to now; null: none was."""
        self._note("committed", {"by": by, "since": since_ns, "offsets": dict(offsets)})

    def logged(self, offsets: Iterable[tuple[str, int | None]]) -> None:
        """The group's log has these commits next, in its order; null: an offset was deleted."""
        self._note("logged", {"offsets": [list(pair) for pair in offsets]})

    def drained(self, ends: Mapping[str, int], logged_ns: int) -> None:
        """The group has committed all of this, and nothing is written any more; ``logged`` is all until then."""
        self._note("drained", {"ends": dict(ends), "logged": logged_ns})

    def _note(self, f: str, value: Any) -> None:
        self._history.note(f, value, process=GROUP)


def _claim(member: int, generation: int, keys: Iterable[str]) -> dict[str, Any]:
    return {"member": member, "generation": generation, "keys": list(keys)}
