"""Writes notes about a group into the history: the owners of partitions, and the commits.

Notes of the process ``group``; :mod:`tidelog_chaos.checker.group_notes` defines their form and meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tidelog_chaos.history import GROUP, HistoryWriter


class GroupNotes:
    """The writer of the notes; thread-safe. ``member`` is the process that is a member of the group."""

    def __init__(self, history: HistoryWriter) -> None:
        self._history = history

    def now_ns(self) -> int:
        """Return the time of the history."""
        return self._history.now_ns()

    def formed(self, settings: Mapping[str, Any]) -> None:
        """Record the settings with which members join a group."""
        self._note("group", dict(settings))

    def claim(
        self, f: Literal["assigned", "revoked", "lost"], member: int, generation: int, keys: Iterable[str]
    ) -> None:
        """Record that a member was assigned partitions, finished its work before revoking them, or lost them.

        Lost are partitions of which the member was told that they may belong to another.
        """
        self._note(f, {"member": member, "generation": generation, "keys": list(keys)})

    def holds(self, member: int, generation: int) -> None:
        """Record that a member is in a generation now, with its current partitions."""
        self._note("holds", {"member": member, "generation": generation})

    def gone(self, member: int) -> None:
        """Record that a member has stopped."""
        self._note("gone", {"member": member})

    def committed(self, by: int | str, since_ns: int, offsets: Mapping[str, int | None]) -> None:
        """Record that ``by`` knows of a commit at some time from ``since_ns`` to now; null means no commit."""
        self._note("committed", {"by": by, "since": since_ns, "offsets": dict(offsets)})

    def logged(self, offsets: Iterable[tuple[str, int | None]]) -> None:
        """Record the next commits in the group's log, in order; null means that an offset was deleted."""
        self._note("logged", {"offsets": [list(pair) for pair in offsets]})

    def drained(self, ends: Mapping[str, int], logged_ns: int) -> None:
        """Record that all is committed and nothing is written any more; the log is known until ``logged_ns``."""
        self._note("drained", {"ends": dict(ends), "logged": logged_ns})

    def _note(self, f: str, value: Any) -> None:
        self._history.note(f, value, process=GROUP)
