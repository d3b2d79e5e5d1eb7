"""The times in which partitions could not be written to, and the faults that caused them.

A window of a key begins with its last acknowledged send before the trouble and ends with the next acknowledged one; so
it is an upper bound. A pause without trouble is not a window: within a window some send was refused, or waited for
``LEAST_NS``. A send that hung since before the window does not count, unless it ends the window, because others
succeeded after it.

A window belongs to the fault that began nearest to its start, among those active at some time of it; if there is none,
to one that had ended shortly before, and otherwise to none. Two times measure the effect of the fault: the window, and
the time from the fault's start until the key was written to again. The latter counts only if the fault began in the
window or just before, because a later recovery has other reasons as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog_chaos.checker.transactions import NEVER, OK, Transactions
from tidelog_chaos.history import NEMESIS, Op
from tidelog_chaos.metrics import distribution

LEAST_NS: Final = 250_000_000
"""The minimum length of a window."""
_AFTERMATH_NS: Final = 10_000_000_000
_AT_ONCE_NS: Final = LEAST_NS
NO_FAULT: Final = "no fault"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault from its start to its end. A fault that was not healed ends with the history."""

    name: str
    """For example ``kill``."""
    kind: str
    """For example ``leader``; empty if the note does not have it."""
    what: str
    """In words, for example ``kill node 2``."""
    start_ns: int
    end_ns: int

    @property
    def label(self) -> str:
        """Name and kind, by which faults are grouped."""
        return f"{self.name} {self.kind}".strip()


@dataclass(frozen=True, slots=True)
class Window:
    """A period during which a key could not be written."""

    key: str
    start_ns: int
    end_ns: int
    is_open: bool
    """It lasted until the end of the history."""
    fault: Fault | None = None
    after: bool = False
    """The fault was over when the window began."""

    @property
    def duration_ms(self) -> float:
        """The length of the window."""
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def label(self) -> str:
        """The cause as text, by which windows are grouped."""
        if self.fault is None:
            return NO_FAULT
        return f"after {self.fault.label}" if self.after else self.fault.label

    @property
    def recovery_ms(self) -> float | None:
        """The time from the start of the fault until a send was acknowledged; None if it did not begin just then."""
        if self.fault is None or self.is_open or self.start_ns - self.fault.start_ns > _AT_ONCE_NS:
            return None
        return (self.end_ns - self.fault.start_ns) / 1e6


@dataclass(frozen=True, slots=True)
class Impact:
    """The effect of the faults with one label; times in milliseconds, each (median, 99th percentile, maximum)."""

    label: str
    faults: int
    windows: int
    open_windows: int
    unavailable_ms: tuple[float, float, float] | None
    recovery_ms: tuple[float, float, float] | None
    """From the start of the fault until a partition was written to again."""


def read_faults(ops: Iterable[Op]) -> list[Fault]:
    """Return the faults that the nemesis noted, by their start.

    A ``stop-<fault>`` ends the oldest fault of that name that has the same value, else the oldest of that name.
    """
    faults: list[Fault] = []
    lasting: list[tuple[Op, str]] = []
    end_ns = 0
    for op in ops:
        end_ns = max(end_ns, op.time_ns)
        action, _, name = op.f.partition("-")
        if op.process != NEMESIS or not name or op.type == "invoke":
            continue
        if action == "start":
            lasting.append((op, name))
        elif action == "stop":
            named = [entry for entry in lasting if entry[1] == name]
            ended = next((entry for entry in named if entry[0].value == op.value), named[0] if named else None)
            if ended is not None:
                lasting.remove(ended)
                faults.append(_fault(*ended, op.time_ns))
    faults += [_fault(begun, name, end_ns) for begun, name in lasting]
    return sorted(faults, key=lambda fault: fault.start_ns)


def find_windows(transactions: Transactions, faults: Sequence[Fault]) -> list[Window]:
    """Return all windows of all keys, by their start, each with its fault."""
    windows = [
        _blamed(window, faults) for key, sends in _sends(transactions).items() for window in _windows(key, sends)
    ]
    return sorted(windows, key=lambda window: window.start_ns)


def impacts(windows: Sequence[Window], faults: Sequence[Fault]) -> list[Impact]:
    """Return the effect of each kind of fault, the worst first."""
    count: dict[str, int] = defaultdict(int)
    for fault in faults:
        count[fault.label] += 1
    grouped: dict[str, list[Window]] = {label: [] for label in count}
    for window in windows:
        grouped.setdefault(window.label, []).append(window)
    found = [_impact(label, count.get(label, 0), of_label) for label, of_label in grouped.items()]
    return sorted(found, key=lambda impact: -(impact.unavailable_ms or (0, 0, 0))[2])


def _impact(label: str, faults: int, windows: Sequence[Window]) -> Impact:
    return Impact(
        label,
        faults,
        len(windows),
        sum(window.is_open for window in windows),
        distribution(window.duration_ms for window in windows),
        distribution(window.recovery_ms for window in windows if window.recovery_ms is not None),
    )


def _fault(begun: Op, name: str, end_ns: int) -> Fault:
    value = begun.value
    if not isinstance(value, dict):
        words = value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""
        return Fault(name, "", f"{name} {words}".strip(), begun.time_ns, end_ns)
    return Fault(name, str(value.get("kind", "")), str(value.get("what", name)), begun.time_ns, end_ns)


def _sends(transactions: Transactions) -> dict[str, list[tuple[int, int, bool]]]:
    """Return for each key (completed, invoked, acknowledged) of each transaction that sent to it, by completion."""
    end_ns = max(transactions.times_ns, default=0)
    sends: dict[str, list[tuple[int, int, bool]]] = {}
    last = (-1, "")
    for transaction, value, _ in transactions.sends():
        key, _ = transactions.name(value)
        if (transaction, key) == last:
            continue
        last = (transaction, key)
        is_over = transactions.positions[transaction] != NEVER
        completed_ns = transactions.times_ns[transaction] if is_over else end_ns
        invoked_ns = transactions.invoke_times_ns[transaction]
        sends.setdefault(key, []).append((completed_ns, invoked_ns, transactions.types[transaction] == OK))
    return {key: sorted(of_key) for key, of_key in sends.items()}


def _windows(key: str, sends: Sequence[tuple[int, int, bool]]) -> Iterator[Window]:
    last_ns = sends[0][1]
    trouble = False
    for completed_ns, invoked_ns, acknowledged in sends:
        waited = completed_ns - max(invoked_ns, last_ns) >= LEAST_NS
        if not acknowledged:
            trouble = trouble or invoked_ns >= last_ns
            continue
        if (trouble or waited) and completed_ns - last_ns >= LEAST_NS:
            yield Window(key, last_ns, completed_ns, is_open=False)
        last_ns, trouble = completed_ns, False
    if trouble and sends[-1][0] - last_ns >= LEAST_NS:
        yield Window(key, last_ns, sends[-1][0], is_open=True)


def _blamed(window: Window, faults: Sequence[Fault]) -> Window:
    lasting = [fault for fault in faults if fault.start_ns <= window.end_ns and fault.end_ns >= window.start_ns]
    if lasting:
        fault = min(lasting, key=lambda fault: abs(fault.start_ns - window.start_ns))
        return Window(window.key, window.start_ns, window.end_ns, window.is_open, fault)
    over = [fault for fault in faults if 0 <= window.start_ns - fault.end_ns <= _AFTERMATH_NS]
    if not over:
        return window
    latest = max(over, key=lambda fault: fault.end_ns)
    return Window(window.key, window.start_ns, window.end_ns, window.is_open, latest, after=True)
