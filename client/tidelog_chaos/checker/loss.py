"""Acknowledged values that nobody read: lost-write and unseen.

A value is a lost-write if some reader got past it: the bound of a key is the highest index at which a value that an
``ok`` poll read was first seen. An ``ok`` poll must have read every value whose last index is not above the bound, if
its writer is known to have taken effect (``committed``). So an ``info`` send that nobody saw is not lost, nor is a
value of unknown offset: that one is unseen.

A value is unseen if an ``ok`` send wrote it and no ``ok`` poll returned it by the end of the history; this includes
values that nobody looked for, as in Jepsen, whose histories end with polls of everything. A note has their number:
values for which no ``ok`` poll of their key began after the end of the send. A poll looks at the keys assigned to its
process, or at any key for a process that subscribes or has no assignment.

The opposite are values that polls should not have returned: G1a, precommitted-read and phantom-read. G1a is an ``ok``
poll of a value whose send failed. A precommitted-read is a transaction of any outcome that polls a value that it sent
itself: consumers see committed values, and a transaction in progress is not committed. A phantom-read is a value that
nobody sent; Jepsen's analysis stops at one. It counts only for keys to which the history sends, because others may have
had values before it began, and not at an offset that held another value too, which inconsistent-offsets reports.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import partial

from tidelog_chaos.checker.transactions import ASSIGN, CRASH, FAIL, OK, SUBSCRIBE, UNKNOWN, Transactions, Visibility
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.verdict import Case, Findings

_NEVER = -1


def find_lost(transactions: Transactions, visibility: Visibility, versions: VersionOrders, findings: Findings) -> None:
    """Add lost-write and unseen."""
    for key in range(len(transactions.keys)):
        bound = _bound(key, transactions, visibility, versions)
        for value in _passed_over(key, bound, transactions, visibility, versions):
            findings.add("lost-write", partial(_lost_case, value, bound, transactions, visibility, versions))
    _find_unseen(transactions, visibility, findings)


def _bound(key: int, transactions: Transactions, visibility: Visibility, versions: VersionOrders) -> tuple[int, int]:
    """Return the highest first index of a value that was read, and that value."""
    best = (UNKNOWN, UNKNOWN)
    log = versions.logs[key]
    for index in range(len(log.order) - 1, -1, -1):
        if index <= best[0]:
            break
        for value in log.at(index):
            if visibility.first_reader[value] != UNKNOWN:
                best = max(best, (versions.first_index[value], value))
    return best


def _passed_over(
    key: int, bound: tuple[int, int], transactions: Transactions, visibility: Visibility, versions: VersionOrders
) -> Iterator[int]:
    log = versions.logs[key]
    for index in range(bound[0] + 1):
        for value in log.at(index):
            if versions.last_index[value] != index or visibility.first_reader[value] != UNKNOWN:
                continue
            if visibility.is_committed_value(transactions, value):
                yield value


def _lost_case(
    value: int,
    bound: tuple[int, int],
    transactions: Transactions,
    visibility: Visibility,
    versions: VersionOrders,
) -> Case:
    key, name = transactions.name(value)
    log = versions.logs[transactions.key_of_value[value]]
    offset, reached = log.offsets[versions.last_index[value]], log.offsets[bound[0]]
    writer, reader = transactions.writers[value], visibility.first_reader[bound[1]]
    return {
        "text": f"{key}: value {name} at offset {offset} was never polled, though offset {reached} was",
        "key": key,
        "value": name,
        "offset": offset,
        "index": versions.first_index[value],
        "max_read_index": bound[0],
        "ops": [transactions.as_operation(writer, [value]), transactions.as_operation(reader, [bound[1]])],
    }


def _find_unseen(transactions: Transactions, visibility: Visibility, findings: Findings) -> None:
    unseen = {
        value: transaction
        for transaction, value, _ in transactions.sends()
        if transactions.types[transaction] == OK and visibility.first_reader[value] == UNKNOWN
    }
    if not unseen:
        return
    looked = last_looks(transactions)
    missed = 0
    for value, transaction in unseen.items():
        missed += looked[transactions.key_of_value[value]] <= transactions.positions[transaction]
        findings.add("unseen", partial(_unseen_case, transaction, value, transactions))
    if missed:
        findings.notes.append(
            f"{missed:,} unseen {'value was' if missed == 1 else 'values were'} not looked for: no poll of the "
            "key began after the send. A final read of all keys from the beginning would tell whether they are there."
        )


def _unseen_case(transaction: int, value: int, transactions: Transactions) -> Case:
    key, name = transactions.name(value)
    return {
        "text": f"{key}: value {name} was acknowledged and never polled",
        "key": key,
        "value": name,
        "ops": [transactions.as_operation(transaction, [value])],
    }


def last_looks(transactions: Transactions) -> Sequence[int]:
    """Return for each key the position at which its last ``ok`` poll began, -1 without one."""
    return _Looks(transactions).last


class _Looks:
    """The last look at each key: the position at which the last ``ok`` poll of it began.

    A process's polls are recorded for its keys when its assignment ends, so that many keys cost nothing per poll.
    """

    def __init__(self, transactions: Transactions) -> None:
        self.last = array("q", [_NEVER]) * len(transactions.keys)
        assigned: dict[int, frozenset[int] | None] = {}
        polled: dict[int, int] = {}
        for number, function in enumerate(transactions.functions):
            process = transactions.processes[number]
            if function == CRASH or (function in (ASSIGN, SUBSCRIBE) and transactions.types[number] != FAIL):
                self._put_down(assigned.get(process), polled.pop(process, _NEVER))
                assigned[process] = transactions.assigned[number] if function == ASSIGN else None
            elif transactions.polls[number] and transactions.types[number] == OK:
                began = transactions.invoke_positions[number]
                polled[process] = transactions.positions[number] if began == UNKNOWN else began
        for process, position in polled.items():
            self._put_down(assigned.get(process), position)

    def _put_down(self, keys: frozenset[int] | None, position: int) -> None:
        if position == _NEVER:
            return
        for key in range(len(self.last)) if keys is None else keys:
            self.last[key] = max(self.last[key], position)


def find_exposed(transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
    """Add G1a, precommitted-read and phantom-read; each value and reader once."""
    written_keys = {transactions.key_of_value[value] for _, value, _ in transactions.sends()}
    told = {value for log in versions.logs for values in log.conflicts.values() for value in values}
    types, writers, resent = transactions.types, transactions.writers, transactions.resent
    last = (UNKNOWN, UNKNOWN)
    for reader, value, _ in transactions.reads():
        writer = writers[value]
        if writer == UNKNOWN:
            if transactions.key_of_value[value] in written_keys and value not in told:
                told.add(value)
                _add(findings, "phantom-read", "which nobody sent", transactions, value, reader)
        elif (reader, value) == last:
            continue
        elif writer == reader or reader in resent.get(value, ()):
            _add(findings, "precommitted-read", "which it sent itself", transactions, value, reader)
        elif types[reader] == OK and any(types[sender] == FAIL for sender in resent.get(value, (writer,))):
            _add(findings, "G1a", "whose send had failed", transactions, value, reader)
        last = (reader, value)


def _add(findings: Findings, name: str, what: str, transactions: Transactions, value: int, reader: int) -> None:
    findings.add(name, lambda: _case(transactions, value, reader, what))


def _case(transactions: Transactions, value: int, reader: int, what: str) -> Case:
    key, name = transactions.name(value)
    behind = [*(sender for sender in transactions.senders(value) if sender != reader), reader]
    return {
        "text": f"{key}: operation {transactions.indexes[reader]} polled value {name}, {what}",
        "key": key,
        "value": name,
        "ops": [transactions.as_operation(transaction, [value]) for transaction in behind],
    }
