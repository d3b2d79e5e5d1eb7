"""The lag of polls behind real time: the minimum time for which a process's newest value was not the newest.

An offset is known to exist once an operation that named it, or a higher one, completed. From then on a process that has
read less lags; the lag of a poll is the time from then until the poll began. That is a lower bound, as in Jepsen. A
process's keys are its assigned ones, from offset -1 on. A subscriber's keys are those that a poll returns, for that
poll alone: its group may have given them to others in between.

A process that was told to seek to the beginning is behind on purpose, and is left out.

Between two reads of a key the lag only grows, so the maximum is at reads, at changes of the assignment and at the end;
finding it costs the number of reads, and not polls times keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog_chaos.checker.transactions import ASSIGN, CRASH, FAIL, OK, SUBSCRIBE, UNKNOWN, Transactions

_NS_PER_MS = 1e6
_NOTHING = -1


@dataclass(slots=True)
class _Known:
    """The times since which each offset of a key, or a higher one, was known to exist: both columns ascend."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    times_ns: array[int] = field(default_factory=lambda: array("q"))

    def add(self, offset: int, time_ns: int) -> None:
        if not self.offsets or offset > self.offsets[-1]:
            self.offsets.append(offset)
            self.times_ns.append(time_ns)

    def expired_ns(self, offset: int) -> int | None:
        """Return the time from which the offset was known not to be the last one."""
        place = bisect_left(self.offsets, offset + 1)
        return self.times_ns[place] if place < len(self.times_ns) else None


@dataclass(slots=True)
class _Reader:
    """The highest offset that a process has read of each key, and the start of its previous poll."""

    offsets: dict[int, int] = field(default_factory=dict)
    last_poll_ns: int | None = None
    is_rereading: bool = False
    is_subscribed: bool = False


def realtime_lag(transactions: Transactions) -> dict[str, Any]:
    """Return the worst lag with its process, key and time, and the distribution at reads, in milliseconds."""
    return _Lags(transactions).summary()


class _Lags:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._known = _known(transactions)
        self._readers: dict[int, _Reader] = {}
        self._at_reads_ns = array("q")
        self._worst: Mapping[str, Any] | None = None
        self._worst_ns = -1

    def summary(self) -> dict[str, Any]:
        for number, function in enumerate(self._transactions.functions):
            process = self._transactions.processes[number]
            reader = self._readers.setdefault(process, _Reader())
            if function in (ASSIGN, SUBSCRIBE, CRASH):
                self._assign(process, reader, number, function)
            elif (
                self._transactions.polls[number] and self._transactions.types[number] == OK and not reader.is_rereading
            ):
                self._poll(process, reader, number)
        for process, reader in self._readers.items():
            self._settle(process, reader)
        ordered = sorted(self._at_reads_ns)
        count = len(ordered)
        return {
            "worst": self._worst,
            "reads": count,
            "p50_ms": _ms(ordered[count // 2]) if count else None,
            "p99_ms": _ms(ordered[min(count - 1, count * 99 // 100)]) if count else None,
            "max_ms": _ms(ordered[-1]) if count else None,
        }

    def _assign(self, process: int, reader: _Reader, number: int, function: int) -> None:
        if function != CRASH and self._transactions.types[number] == FAIL:
            return
        self._settle(process, reader)
        reader.is_subscribed = function == SUBSCRIBE
        reader.is_rereading = number in self._transactions.seeks
        kept = reader.offsets if function == ASSIGN else {}
        keys = self._transactions.assigned[number] if function == ASSIGN else ()
        reader.offsets = {key: kept.get(key, _NOTHING) for key in keys}
        reader.last_poll_ns = None

    def _poll(self, process: int, reader: _Reader, number: int) -> None:
        began_ns = self._transactions.invoke_times_ns[number]
        for key, offset in _highest(self._transactions, number).items():
            before = reader.offsets.get(key, _NOTHING)
            if key in reader.offsets and reader.last_poll_ns is not None and not reader.is_subscribed:
                self._note(process, key, before, reader.last_poll_ns)
            reader.offsets[key] = max(before, offset)
            self._at_reads_ns.append(self._note(process, key, reader.offsets[key], began_ns))
        reader.last_poll_ns = began_ns

    def _settle(self, process: int, reader: _Reader) -> None:
        if reader.last_poll_ns is not None and not reader.is_subscribed:
            for key, offset in reader.offsets.items():
                self._note(process, key, offset, reader.last_poll_ns)

    def _note(self, process: int, key: int, offset: int, began_ns: int) -> int:
        expired_ns = self._known[key].expired_ns(offset)
        lag_ns = 0 if expired_ns is None else max(0, began_ns - expired_ns)
        if lag_ns > self._worst_ns:
            self._worst_ns = lag_ns
            self._worst = {
                "lag_ms": _ms(lag_ns),
                "process": self._transactions.process_names[process],
                "key": self._transactions.keys[key],
                "time": began_ns,
            }
        return lag_ns


def _known(transactions: Transactions) -> list[_Known]:
    known = [_Known() for _ in transactions.keys]
    for number, kind in enumerate(transactions.types):
        if kind != FAIL:
            for key, offset in _highest(transactions, number).items():
                known[key].add(offset, transactions.times_ns[number])
    return known


def _highest(transactions: Transactions, number: int) -> dict[int, int]:
    """Return the highest offset of each key that a transaction named, in a send or a poll."""
    highest: dict[int, int] = {}
    for entry in transactions.entries(number):
        offset = transactions.offsets[entry]
        if offset != UNKNOWN:
            key = transactions.key_of_value[transactions.values[entry]]
            highest[key] = max(highest.get(key, _NOTHING), offset)
    return highest


def _ms(duration_ns: int) -> float:
    return round(duration_ns / _NS_PER_MS, 3)
