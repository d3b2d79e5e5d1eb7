"""The notes of a history about a query that copies topics: lines of the process ``spark``, of type ``info``.

::

    f          value
    copies     {"of": {input key: output key}}: the query writes each value of an input to this output, in order
    started    {"start": 3}: the third start of the query's processes
    killed     {"start": 3, "kind": "worker", "processes": 1}: so many of them were killed
    failed     {"start": 3, "error": "..."}: the query ended by itself
    committed  {"start": 3, "batch": 17, "ends": {key: offset}}: the batch is committed, and reaches up to these offsets
    copied     {"limit_s": 300, "behind": {key: [copied, end]}}: nothing more is sent, no fault is active, and the query
               had up to this time; those inputs are not copied up to their ends
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog_chaos.history import SPARK, InvalidHistoryError, Op, shown


@dataclass(slots=True)
class CopyNotes:
    """The parts of a history that concern copies."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    """The output key of each input key."""
    starts: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    committed_ns: list[int] = field(default_factory=list)
    """The times at which a new batch was seen to be committed."""
    copied: Op | None = None
    copied_position: int = 0
    """The number of lines before ``copied``."""
    behind: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def taking(self, ops: Iterable[Op]) -> Iterator[Op]:
        """Yield a history unchanged, and collect its notes.

        Raises:
            InvalidHistoryError: A note is malformed; the message names its index.
        """
        for position, op in enumerate(ops):
            if op.process == SPARK:
                try:
                    self._take(op, op.value, position)
                except (ValueError, TypeError, KeyError, AttributeError):
                    text = f"index {op.index}: {shown(op.value)} is not what is noted of copies as {op.f}"
                    raise InvalidHistoryError(text, index=op.index) from None
            yield op

    def _take(self, op: Op, value: Any, position: int) -> None:
        match op.f:
            case "copies":
                self.outputs = {str(taken): str(given) for taken, given in value["of"].items()}
            case "started":
                self.starts += 1
            case "killed":
                if int(value["processes"]):
                    self.kills[str(value["kind"])] += 1
            case "failed":
                self.failures[str(value["error"])] += 1
            case "committed":
                self.committed_ns.append(op.time_ns)
            case "copied":
                self.copied, self.copied_position = op, position
                self.behind = {str(key): (int(done), int(end)) for key, (done, end) in value["behind"].items()}
