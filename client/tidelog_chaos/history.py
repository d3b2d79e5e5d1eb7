"""The operations of clients and their outcomes, one JSON object per line, in the format of Jepsen's histories.

An operation is two lines: its ``invoke`` and its completion, which is ``ok`` (it happened), ``fail`` (it certainly did
not) or ``info`` (unknown). A process does one thing at a time; after ``info`` a client takes a new process, because
the old operation may still take effect. Faults are notes of the process ``nemesis``::

    {"index": 0, "process": 0, "type": "invoke", "f": "send", "value": [["send", "k0", 1]], "time": 0}
    {"index": 1, "process": 0, "type": "ok", "f": "send", "value": [["send", "k0", [0, 1]]], "time": 5}
    {"index": 2, "process": 1, "type": "invoke", "f": "poll", "value": [["poll"]], "time": 6}
    {"index": 3, "process": 1, "type": "ok", "f": "poll", "value": [["poll", {"k0": [[0, 1]]}]], "time": 9}
    {"index": 4, "process": "nemesis", "type": "info", "f": "start-kill", "value": ["node 1"], "time": 12}

``f`` of a client is send, poll, txn (both kinds of micro-operations), assign, subscribe (``value`` is the list of
keys), crash or debug-topic-partitions. Keys are strings, a partition's is ``<topic>-<number>``; the values of a key are
unique. A send completes with ``[offset, value]``; the offset is null if unknown. All other members of a line, such as
``error`` and ``rebalance_log`` (``[{"keys": [...]}]``: the keys newly assigned during a poll), are kept.

Notes of the process ``group`` describe a consumer group beside its members' operations, those of the process
``transactions`` transactional producers, those of the process ``spark`` a query that copies;
:mod:`tidelog_chaos.checker.group_notes`, :mod:`tidelog_chaos.checker.transaction_notes` and
:mod:`tidelog_chaos.checker.copy_notes` define their forms.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TextIO, TypeVar, cast

from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

OpType = Literal["invoke", "ok", "info", "fail"]
Process = int | str
Number = TypeVar("Number", int, float)

NEMESIS: Final = "nemesis"
"""The process of the faults; its notes are ``info``, their ``f`` is ``start-<fault>`` or ``stop-<fault>``."""
GROUP: Final = "group"
"""The process of the notes about a consumer group, in addition to its members' operations; they are ``info`` too."""
TRANSACTIONS: Final = "transactions"
"""The process of the notes about Kafka's transactions; they are ``info`` too."""
SPARK: Final = "spark"
"""The process of the notes about a query that copies; they are ``info`` too."""
NOTES: Final = frozenset({NEMESIS, GROUP, TRANSACTIONS, SPARK})
"""Processes that are not clients: their lines are notes."""
TRANSACTION_FUNCTIONS: Final = frozenset({"send", "poll", "txn"})
"""The values of ``f`` whose value is a list of micro-operations."""
ASSIGNMENT_FUNCTIONS: Final = frozenset({"assign", "subscribe"})
"""The values of ``f`` whose value is the list of keys that a process reads from then on."""

MOST: Final = 2**61
"""The highest index, offset and time in nanoseconds (73 years)."""

_TYPES: Final = ("invoke", "ok", "info", "fail")
_MEMBERS: Final = frozenset({"index", "process", "type", "f", "value", "time", "error"})
_LONGEST_SHOWN: Final = 120
_NOTHING_EXTRA: Final[Mapping[str, Any]] = MappingProxyType({})


class InvalidHistoryError(TidelogError):
    """A line that is not an operation, or that cannot follow the lines before it.

    ``line`` counts from 1, and is 0 if unknown; ``index`` is that of the operation, if there is one.
    """

    def __init__(self, error: KafkaError | str, line: int = 0, index: int | None = None) -> None:
        super().__init__(error if isinstance(error, KafkaError) else KafkaError(ErrorCode._BAD_MSG, error))
        self.line = line
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.error, self.line, self.index))


@dataclass(frozen=True, slots=True)
class Op:
    """One line of a history: an invocation, its completion, or a note of the nemesis."""

    index: int
    """Ascends through the history, with gaps where lines were removed."""
    process: Process
    type: OpType
    f: str
    value: Any
    time_ns: int
    """Nanoseconds since the start of the history, by one clock for all processes."""
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING_EXTRA)
    """Further members of the line, such as ``rebalance_log``."""

    def as_json(self) -> dict[str, Any]:
        """Return the line's object, its members in the order of the format."""
        members: dict[str, Any] = {"index": self.index, "process": self.process, "type": self.type, "f": self.f}
        members |= {"value": self.value, "time": self.time_ns}
        if self.error is not None:
            members["error"] = self.error
        return members | dict(self.extra)


def read_history(lines: Iterable[str | bytes]) -> Iterator[Op]:
    """Yield the operations of lines, such as those of an open file; blank lines are skipped.

    A missing (or null) index is one more than the last; a missing time is the last one. A process may complete only
    what it invoked, and invoke only when it has nothing pending, except for ``crash``, which may come at any time. A
    completion without an invocation is accepted, because truncated histories have them. The checker judges the values.

    Raises:
        InvalidHistoryError: Names the line, and its fault.
    """
    index, time_ns = -1, 0
    pending: dict[Process, Op] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            op = _op(_object(line), index, time_ns)
            _follow(pending, op)
        except (ValueError, RecursionError) as error:
            raise InvalidHistoryError(f"line {number}: {error}", number) from None
        index, time_ns = op.index, op.time_ns
        yield op


class HistoryWriter:
    """Writes a history as it happens; thread-safe. Every line is on its way to the disk when a call returns.

    It assigns index and time under one lock, so that the order of lines is an order of real time: an operation that
    completed above the line where another was invoked was complete before the other began.
    """

    def __init__(self, path: Path | str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._start_ns = clock()
        self._next_index = 0
        self._file: TextIO = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  # close() is the caller's

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now_ns(self) -> int:
        """Return the history's time, for other measurements."""
        return self._clock() - self._start_ns

    def invoke(self, process: Process, f: str, value: Any = None, **extra: Any) -> Op:
        """Write the start of an operation; return the invocation for :meth:`complete`."""
        return self._write(process, "invoke", f, value, None, extra)

    def complete(
        self,
        invocation: Op,
        type: Literal["ok", "info", "fail"],
        value: Any = None,
        error: str | None = None,
        **extra: Any,
    ) -> Op:
        """Write the end of an operation; without a value the invocation's is repeated."""
        value = invocation.value if value is None else value
        return self._write(invocation.process, type, invocation.f, value, error, extra)

    def note(self, f: str, value: Any = None, *, process: str = NEMESIS, **extra: Any) -> Op:
        """Write a note about the nemesis or a group."""
        return self._write(process, "info", f, value, None, extra)

    def close(self) -> None:
        """Close the file; nothing can be written afterwards."""
        with self._lock:
            self._file.close()

    def _write(
        self, process: Process, kind: OpType, f: str, value: Any, error: str | None, extra: Mapping[str, Any]
    ) -> Op:
        if not _MEMBERS.isdisjoint(extra):
            raise ValueError(f"{sorted(_MEMBERS & extra.keys())} cannot be extra members of an operation")
        with self._lock:
            op = Op(self._next_index, process, kind, f, value, self.now_ns(), error, extra or _NOTHING_EXTRA)
            self._file.write(json.dumps(op.as_json(), separators=(",", ":")) + "\n")
            self._next_index += 1
        return op


def shown(value: Any) -> str:
    """Return a value of a line as JSON, truncated if it is long, for the text of an error."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _object(line: str | bytes) -> dict[str, Any]:
    try:
        members = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(members, dict):
        raise ValueError("an operation is a JSON object")
    return members


def _op(members: dict[str, Any], last_index: int, last_time_ns: int) -> Op:
    missing = [name for name in ("process", "type", "f") if name not in members]
    if missing:
        raise ValueError(f"{' and '.join(missing)} missing")
    index = _integer(members, "index", last_index + 1)
    if index <= last_index:
        raise ValueError(f"index {index} after index {last_index}")
    kind, f, process = members["type"], members["f"], members["process"]
    if kind not in _TYPES:
        raise ValueError(f"type is {shown(kind)}, not invoke, ok, info or fail")
    if not isinstance(f, str):
        raise ValueError(f"f is {shown(f)}, not a string")
    if isinstance(process, bool) or not isinstance(process, int | str):
        raise ValueError(f"process is {shown(process)}, not a number or a name")
    error = members.get("error")
    text = error if error is None or isinstance(error, str) else json.dumps(error)
    extra = {name: value for name, value in members.items() if name not in _MEMBERS}
    time_ns = _integer(members, "time", last_time_ns)
    return Op(index, process, cast(OpType, kind), f, members.get("value"), time_ns, text, extra or _NOTHING_EXTRA)


def _integer(members: dict[str, Any], name: str, default: int) -> int:
    value = members.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"{name} is {shown(value)}, not a whole number from 0 to {MOST}")
    return value


def _follow(pending: dict[Process, Op], op: Op) -> None:
    """Update the pending operation of each process.

    Raises:
        ValueError: It does two things at a time, or completes an operation that it did not invoke.
    """
    if op.process in NOTES:
        return
    before = pending.pop(op.process, None)
    if before is not None and op.f == "crash" != before.f:
        before = None
    if op.type == "invoke":
        if before is not None:
            raise ValueError(
                f"process {op.process} invokes {op.f} while its {before.f} of index {before.index} is pending"
            )
        pending[op.process] = op
    elif before is not None and before.f != op.f:
        raise ValueError(f"process {op.process} completes {op.f}, its {before.f} of index {before.index} is pending")


def merge_spans(spans: Iterable[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
    """Return the spans of time in order, with touching ones merged; both ends are included."""
    merged: list[tuple[Number, Number]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
