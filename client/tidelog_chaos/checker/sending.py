"""The order of sent values in the log: within one operation, and between those of a process.

Two consecutive sends of a key must have ascending indexes; one of unknown index is skipped. Within an operation all
outcomes are checked. Values of others between two of one operation (int-send-skip) are permitted: sends of a
transaction are not isolated. Between operations ``ok`` and ``info`` are compared with each other: after an ``info`` a
client takes a new process, so a late effect does not conflict with its next sends. As with polls, ``assign`` and
``subscribe`` forget the keys that they do not name, and ``crash`` forgets all.
"""

from __future__ import annotations

from tidelog_chaos.checker.transactions import ASSIGN, CRASH, FAIL, SUBSCRIBE, UNKNOWN, Transactions
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.verdict import Case, Findings

_LastSends = dict[int, tuple[int, int]]
"""The last value that a process sent per key, and its transaction."""


def find_disordered_sends(transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
    """Add int-send-skip, int-nonmonotonic-send and nonmonotonic-send."""
    _Sends(transactions, versions, findings).walk()


class _Sends:
    def __init__(self, transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
        self._transactions = transactions
        self._versions = versions
        self._findings = findings
        self._last_sends: dict[int, _LastSends] = {}

    def walk(self) -> None:
        for number, function in enumerate(self._transactions.functions):
            process = self._transactions.processes[number]
            if function in (ASSIGN, SUBSCRIBE):
                self._assign(process, number)
            elif function == CRASH:
                self._last_sends.pop(process, None)
            else:
                self._send(self._last_sends.setdefault(process, {}), number)

    def _assign(self, process: int, number: int) -> None:
        if self._transactions.types[number] == FAIL or process not in self._last_sends:
            return
        kept = self._transactions.assigned[number]
        last_sends = self._last_sends[process]
        self._last_sends[process] = {key: sent for key, sent in last_sends.items() if key in kept}

    def _send(self, last_sends: _LastSends, number: int) -> None:
        transactions = self._transactions
        last_of_key: dict[int, int] = {}
        for entry in transactions.entries(number):
            if transactions.micro_operations[entry] >= 0:
                continue
            value = transactions.values[entry]
            key = transactions.key_of_value[value]
            if key in last_of_key:
                self._compare_within(last_of_key[key], value, number)
            elif key in last_sends and transactions.types[number] != FAIL:
                self._compare_with_last(last_sends[key], value, number)
            last_of_key[key] = value
        if transactions.types[number] != FAIL:
            for key, value in last_of_key.items():
                last_sends[key] = (value, number)

    def _compare_within(self, before: int, value: int, number: int) -> None:
        delta = self._versions.delta(before, value)
        if delta > 1:
            self._findings.add("int-send-skip", lambda: self._case(before, value, delta, (number,)), permitted=True)
        elif delta < 1:
            self._findings.add("int-nonmonotonic-send", lambda: self._case(before, value, delta, (number,)))

    def _compare_with_last(self, last: tuple[int, int], value: int, number: int) -> None:
        before, previous = last
        delta = self._versions.delta(before, value)
        if delta < 1:
            self._findings.add("nonmonotonic-send", lambda: self._case(before, value, delta, (previous, number)))

    def _case(self, before: int, value: int, delta: int, behind: tuple[int, ...]) -> Case:
        transactions, versions = self._transactions, self._versions
        key, first = transactions.name(before)
        second = transactions.value_names[value]
        case: Case = {"key": key, "values": [first, second], "delta": delta}
        if delta > 1:
            case["skipped"] = versions.between(transactions, before, value)
            how = f"with {delta - 1:,} of others between them"
        else:
            how = f"but {second} is before it in the log"
        process = transactions.process_names[transactions.processes[behind[-1]]]
        case["text"] = f"{key}: process {process} sent {first} and then {second}, {how}"
        case["ops"] = [transactions.as_operation(transaction, (before, value)) for transaction in behind]
        assert versions.index_of[before] != UNKNOWN
        return case
