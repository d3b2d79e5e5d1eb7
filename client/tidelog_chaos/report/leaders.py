"""The leaders over time, as a run recorded them once a second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple


class Reign(NamedTuple):
    """A time in which a partition or the quorum had the same leader; None is no leader, or an unknown one."""

    start_s: float
    end_s: float
    leader: int | None
    key: str


@dataclass(frozen=True, slots=True)
class Leaders:
    """Reigns without gaps, by row; a row is the n-th of the keys that were written to at a time."""

    rows: list[list[Reign]] = field(default_factory=list)
    controller: list[Reign] = field(default_factory=list)

    @property
    def nodes(self) -> list[int]:
        """All nodes that ever led."""
        return sorted({reign.leader for row in self.rows for reign in row if reign.leader is not None})

    @property
    def moves(self) -> int:
        """The number of leader changes of partitions."""
        return sum(_moves(row) for row in self.rows)

    @property
    def controller_moves(self) -> int:
        """The number of leader changes of the quorum."""
        return _moves(self.controller)


def read_leaders(lines: Iterable[Mapping[str, Any]]) -> Leaders:
    """Return the leaders from the lines of ``metrics.jsonl``; each line covers the time since the previous one."""
    found = Leaders()
    last_s = 0.0
    for line in lines:
        time_s = float(line.get("time", last_s))
        leaders = line.get("leaders")
        if isinstance(leaders, dict):
            for row, key in enumerate(sorted(leaders)):
                if row == len(found.rows):
                    found.rows.append([])
                _extend(found.rows[row], last_s, time_s, leaders[key], key)
        if line.get("controller") is not None or found.controller:
            _extend(found.controller, last_s, time_s, line.get("controller"), "controllers")
        last_s = time_s
    return found


def _extend(row: list[Reign], start_s: float, end_s: float, leader: int | None, key: str) -> None:
    if row and row[-1].leader == leader and row[-1].key == key and row[-1].end_s == start_s:
        row[-1] = row[-1]._replace(end_s=end_s)
    else:
        row.append(Reign(start_s, end_s, leader, key))


def _moves(row: list[Reign]) -> int:
    known = [(reign.key, reign.leader) for reign in row if reign.leader is not None]
    return sum(before[0] == now[0] and before[1] != now[1] for before, now in pairwise(known))
