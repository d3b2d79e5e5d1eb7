"""The order of polled values: within one operation, and between consecutive operations of a process.

Two consecutive reads of a key must be neighbours in its order: a distance above 1 is a skip, one below 1 is
nonmonotonic. A read of unknown place counts as in order.

- Within an operation all outcomes are checked, because a consumer must get correct values whether or not its own
  transaction commits. A key in the operation's rebalance log was revoked and assigned again in between: it is left out.
- Between operations the first read of a key is compared with the last read of the process's previous ``ok`` operation
  that read it: after ``fail`` or ``info`` the consumer returns to its earlier position. Reads of such operations are
  checked too.
- ``assign`` and ``subscribe`` forget the keys that they do not name. An assign that seeks to the beginning forgets all,
  as does ``crash``: the client that returns is a new one.
- Under ``subscribe`` the group may move a key away and back between two operations, so skips and steps back between
  operations are permitted if the process was subscribed at one of them or in between.

:func:`consume_counts` counts the ``ok`` polls of each value by each subscribed process; more than one is normal after a
rebalance. A group may give a value to several members, but a member that gets a value twice was set back.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tidelog_chaos.checker.transactions import ASSIGN, CRASH, FAIL, OK, SUBSCRIBE, Transactions
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.verdict import Case, Findings

_NO_KEYS: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Consumer:
    """The progress of a process: per key the value, the transaction, and whether it was subscribed then or since."""

    subscribed: bool = False
    last_reads: dict[int, tuple[int, int, bool]] = field(default_factory=dict)


def find_disordered_polls(transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
    """Add int-poll-skip, int-nonmonotonic-poll, poll-skip and nonmonotonic-poll."""
    _Polls(transactions, versions, findings).walk()


class _Polls:
    def __init__(self, transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
        self._transactions = transactions
        self._versions = versions
        self._findings = findings
        self._consumers: dict[int, _Consumer] = {}

    def walk(self) -> None:
        for number, function in enumerate(self._transactions.functions):
            consumer = self._consumers.setdefault(self._transactions.processes[number], _Consumer())
            if function in (ASSIGN, SUBSCRIBE):
                self._assign(consumer, number, function == SUBSCRIBE)
            elif function == CRASH:
                consumer.last_reads.clear()
            elif self._transactions.polls[number]:
                self._read(consumer, number)

    def _assign(self, consumer: _Consumer, number: int, subscribed: bool) -> None:
        if self._transactions.types[number] == FAIL:
            return
        consumer.subscribed = subscribed
        kept = _NO_KEYS if number in self._transactions.seeks else self._transactions.assigned[number]
        consumer.last_reads = {
            key: (value, at, was_subscribed or subscribed)
            for key, (value, at, was_subscribed) in consumer.last_reads.items()
            if key in kept
        }

    def _read(self, consumer: _Consumer, number: int) -> None:
        transactions, index_of = self._transactions, self._versions.index_of
        last_of_key: dict[int, int] = {}
        for entry in transactions.entries(number):
            if transactions.micro_operations[entry] < 0:
                continue
            value = transactions.values[entry]
            key = transactions.key_of_value[value]
            before = last_of_key.get(key)
            if before is None:
                if key in consumer.last_reads:
                    self._compare_with_last(consumer, key, value, number)
            elif index_of[value] != index_of[before] + 1:
                self._compare_within(key, before, value, number)
            last_of_key[key] = value
        if transactions.types[number] == OK:
            for key, value in last_of_key.items():
                consumer.last_reads[key] = (value, number, consumer.subscribed)

    def _compare_within(self, key: int, before: int, value: int, number: int) -> None:
        delta = self._versions.delta(before, value)
        if delta == 1 or key in self._transactions.rebalanced.get(number, _NO_KEYS):
            return
        name = "int-poll-skip" if delta > 1 else "int-nonmonotonic-poll"
        self._findings.add(name, lambda: self._case(before, value, delta, (number,)))

    def _compare_with_last(self, consumer: _Consumer, key: int, value: int, number: int) -> None:
        before, previous, was_subscribed = consumer.last_reads[key]
        delta = self._versions.delta(before, value)
        if delta == 1:
            return
        name = "poll-skip" if delta > 1 else "nonmonotonic-poll"
        permitted = was_subscribed or consumer.subscribed
        self._findings.add(name, lambda: self._case(before, value, delta, (previous, number)), permitted)

    def _case(self, before: int, value: int, delta: int, behind: tuple[int, ...]) -> Case:
        transactions = self._transactions
        key, name = transactions.name(before)
        after = transactions.value_names[value]
        case: Case = {"key": key, "values": [name, after], "delta": delta}
        if delta > 1:
            case["skipped"] = self._versions.between(transactions, before, value)
            how = f"passed over {delta - 1:,}: {', '.join(map(str, case['skipped'][:8]))}"
        else:
            how = "the same again" if delta == 0 else f"which is {-delta:,} before it"
        process = transactions.process_names[transactions.processes[behind[-1]]]
        case["text"] = f"{key}: process {process} polled {after} after {name}, {how}"
        case["ops"] = [transactions.as_operation(transaction, (before, value)) for transaction in behind]
        return case


_SHOWN = 8


def consume_counts(transactions: Transactions) -> dict[str, Any]:
    """Return how many values one process consumed how often, and the first of the repeated ones."""
    consumed = _consumed(transactions)
    processes = max(1, len(transactions.process_names))
    distribution: Counter[int] = Counter()
    repeated: list[dict[str, Any]] = []
    for code, group in groupby(sorted(consumed)):
        count = sum(1 for _ in group)
        distribution[count] += 1
        if count > 1 and len(repeated) < _SHOWN:
            key, value = transactions.name(code // processes)
            process = transactions.process_names[code % processes]
            repeated.append({"key": key, "value": value, "process": process, "count": count})
    return {"distribution": {str(count): distribution[count] for count in sorted(distribution)}, "repeated": repeated}


def _consumed(transactions: Transactions) -> array[int]:
    """Return a number for each value that a subscriber polled: value * number of processes + process."""
    processes = max(1, len(transactions.process_names))
    return array("q", (value * processes + process for value, process in subscribers_polls(transactions)))


def subscribers_polls(transactions: Transactions) -> Iterator[tuple[int, int]]:
    """Yield the values that ``ok`` polls of subscribed processes returned, each with the process."""
    subscribed: set[int] = set()
    for number, function in enumerate(transactions.functions):
        process, kind = transactions.processes[number], transactions.types[number]
        if function == SUBSCRIBE and kind != FAIL:
            subscribed.add(process)
        elif function == CRASH or (function == ASSIGN and kind != FAIL):
            subscribed.discard(process)
        elif transactions.polls[number] and kind == OK and process in subscribed:
            for entry in transactions.entries(number):
                if transactions.micro_operations[entry] >= 0:
                    yield transactions.values[entry], process
