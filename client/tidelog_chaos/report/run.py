"""The content of a run's directory, for its report.

``history.jsonl`` is required; everything else may be absent, as with a history from elsewhere: the verdict is then
computed, and leaders are not shown. Counts and times come from the history, so that they cannot contradict it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog_chaos.checker import check
from tidelog_chaos.checker.transactions import Transactions, read_transactions
from tidelog_chaos.history import NEMESIS, InvalidHistoryError, Op, read_history
from tidelog_chaos.report.availability import Fault, Impact, Window, find_windows, impacts, read_faults
from tidelog_chaos.report.series import Latency, Leaders, Series, latency_of, make_series, read_leaders
from tidelog_chaos.verdict import Verdict

_HISTORY, _RUN, _VERDICT, _METRICS, _REPLICAS = (
    "history.jsonl",
    "run.json",
    "verdict.json",
    "metrics.jsonl",
    "replicas.json",
)


@dataclass(frozen=True, slots=True)
class Run:
    """The data of a run for its report."""

    name: str
    about: Mapping[str, Any]
    """``run.json``; empty if there is none."""
    verdict: Verdict
    faults: Sequence[Fault]
    windows: Sequence[Window]
    impacts: Sequence[Impact]
    series: Series
    latency: Mapping[str, Latency | None]
    """Of acknowledged sends: ``all``, those that overlap a fault (``faults``) and those that do not (``calm``)."""
    leaders: Leaders

    @property
    def problems(self) -> Sequence[str]:
        """The problems of the run that are not in the history."""
        return tuple(self.about.get("outcome", {}).get("problems", ()))

    @property
    def is_good(self) -> bool:
        """True if there is no anomaly and no problem."""
        return self.verdict.valid and not self.problems


def read_run(directory: Path) -> Run:
    """Return the content of a directory.

    Raises:
        InvalidHistoryError: The history, or another file, is invalid.
        OSError: It cannot be read, or there is no history.
    """
    notes: list[Op] = []
    transactions = _read_transactions(directory / _HISTORY, notes)
    faults = read_faults([*notes, *_end(transactions)])
    windows = find_windows(transactions, faults)
    return Run(
        directory.resolve().name,
        _read_object(directory / _RUN),
        _verdict(directory),
        faults,
        windows,
        impacts(windows, faults),
        make_series(transactions),
        latency_of(transactions, [(fault.start_ns, fault.end_ns) for fault in faults]),
        read_leaders(_objects(directory / _METRICS)),
    )


def read_replicas(path: Path) -> Mapping[str, Mapping[str, list[str]]]:
    """Return the digests of a ``replicas.json``, by key and node.

    Raises:
        InvalidHistoryError: It is invalid.
    """
    found = _read_object(path)
    replicas = found.get("replicas", found)
    if not isinstance(replicas, dict) or not all(_are_logs(logs) for logs in replicas.values()):
        raise InvalidHistoryError(f"{path.name} does not say for each key what the replicas have")
    return replicas


def _are_logs(logs: Any) -> bool:
    return isinstance(logs, dict) and all(
        isinstance(log, list) and all(isinstance(entry, str) for entry in log) for log in logs.values()
    )


def _read_transactions(path: Path, notes: list[Op]) -> Transactions:
    with path.open("rb") as lines:
        return read_transactions(_without_notes(read_history(lines), notes))


def _without_notes(ops: Iterable[Op], notes: list[Op]) -> Iterator[Op]:
    for op in ops:
        if op.process == NEMESIS:
            notes.append(op)
        yield op


def _end(transactions: Transactions) -> list[Op]:
    """Return a note at the end of the history, which ends faults that were not healed."""
    end_ns = max(transactions.times_ns, default=0)
    return [Op(0, NEMESIS, "info", "end", None, end_ns)]


def _verdict(directory: Path) -> Verdict:
    if (directory / _VERDICT).is_file():
        members = _read_object(directory / _VERDICT)
        if "valid" not in members:
            raise InvalidHistoryError(f"{_VERDICT} has no verdict")
        return Verdict.from_json(members)
    replicas = read_replicas(directory / _REPLICAS) if (directory / _REPLICAS).is_file() else None
    with (directory / _HISTORY).open("rb") as lines:
        return check(read_history(lines), replica_logs=replicas)


def _read_object(path: Path) -> Mapping[str, Any]:
    if not path.is_file() and path.name == _RUN:
        return {}
    found = _parse(path.read_text(encoding="utf-8", errors="replace"), path.name)
    if not isinstance(found, dict):
        raise InvalidHistoryError(f"{path.name} is not a JSON object")
    return found


def _objects(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a file whose last line may be incomplete."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            found = _parse(line, f"{path.name}, line {number}")
        except InvalidHistoryError:
            if number < len(lines):
                raise
            return
        if isinstance(found, dict):
            yield found


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidHistoryError(f"{name} is not JSON: {error.msg} at column {error.colno}") from None
