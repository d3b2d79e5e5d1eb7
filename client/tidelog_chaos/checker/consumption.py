"""Counts how often subscribers consumed each value; more than once is normal after a rebalance.

It counts ``ok`` polls of subscribed processes, per process: a group may give a value to several members, but a member
that gets a value twice was set back.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import groupby
from typing import Any

from tidelog_chaos.checker.transactions import ASSIGN, FAIL, OK, SUBSCRIBE, Transactions

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
    subscribed: set[int] = set()
    consumed = array("q")
    for number, function in enumerate(transactions.functions):
        process = transactions.processes[number]
        kind = transactions.types[number]
        if function == SUBSCRIBE and kind != FAIL:
            subscribed.add(process)
        elif function == ASSIGN and kind != FAIL:
            subscribed.discard(process)
        elif transactions.polls[number] and kind == OK and process in subscribed:
            for entry in transactions.entries(number):
                if transactions.micro_operations[entry] >= 0:
                    consumed.append(transactions.values[entry] * processes + process)
    return consumed
