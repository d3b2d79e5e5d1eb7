"""The order of each key's values in its log, as far as the history shows it.

``log[k][offset]`` is the set of values that were seen there: by polls of every outcome, because a consumer must get
correct values whether or not its own transaction commits, and by sends that are known to have taken effect. Offsets
without a value (markers of transactions, compacted records) are dropped; the others are numbered densely, and the other
checks use that index. If an offset has several values, the first one in the history has the place in the order; if a
value has several offsets, its last one counts, as in Jepsen.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog_chaos.checker.transactions import UNKNOWN, Transactions, Visibility


@dataclass(slots=True)
class KeyLog:
    """The known part of one key's log."""

    offsets: array[int]
    """Ascending; number ``i`` is the offset of the index ``i``."""
    order: array[int]
    """The value at each index."""
    conflicts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """All values of an index that has several."""

    def at(self, index: int) -> Sequence[int]:
        """Return the values of an index, usually one."""
        return self.conflicts.get(index) or (self.order[index],)


class VersionOrders:
    """The logs of all keys, and the place of each value in them."""

    def __init__(self, transactions: Transactions, visibility: Visibility) -> None:
        count = len(transactions.value_names)
        self.index_of = array("q", [UNKNOWN]) * count
        """The place of each value in its key's order, or UNKNOWN."""
        self.first_index = array("q", [UNKNOWN]) * count
        """The first place at which it was seen, even beside another value."""
        self.last_index = array("q", [UNKNOWN]) * count
        self.repeated: dict[int, list[int]] = {}
        """The offsets of each value that has several."""
        seen = _seen(transactions, visibility)
        self.logs = [_key_log(places) for places in seen]
        for log in self.logs:
            self._place(log)

    def delta(self, before: int, after: int) -> int:
        """Return how many places a value comes after another of its key; 1, which is correct, if that is unknown."""
        first, second = self.index_of[before], self.index_of[after]
        return 1 if first == UNKNOWN or second == UNKNOWN else second - first

    def between(self, transactions: Transactions, before: int, after: int, limit: int = 32) -> list[object]:
        """Return the values between two of a key, at most ``limit`` of them."""
        order = self.logs[transactions.key_of_value[before]].order
        skipped = order[self.index_of[before] + 1 : self.index_of[after]]
        return [transactions.value_names[value] for value in skipped[:limit]]

    def _place(self, log: KeyLog) -> None:
        for index, value in enumerate(log.order):
            self.index_of[value] = index
            for seen in log.conflicts.get(index) or (value,):
                if self.first_index[seen] == UNKNOWN:
                    self.first_index[seen] = index
                else:
                    first = log.offsets[self.last_index[seen]]
                    self.repeated.setdefault(seen, [first]).append(log.offsets[index])
                self.last_index[seen] = index


def _seen(transactions: Transactions, visibility: Visibility) -> list[dict[int, int | tuple[int, ...]]]:
    """Return for each key its offsets with the value, or values in the order of the history, seen there."""
    logs: list[dict[int, int | tuple[int, ...]]] = [{} for _ in transactions.keys]
    keys, kinds, values = transactions.key_of_value, transactions.micro_operations, transactions.values
    for transaction in range(len(transactions)):
        committed = visibility.committed[transaction]
        for entry in transactions.entries(transaction):
            offset = transactions.offsets[entry]
            if offset == UNKNOWN or (kinds[entry] < 0 and not committed):
                continue
            value = values[entry]
            log = logs[keys[value]]
            known = log.setdefault(offset, value)
            if known == value or (isinstance(known, tuple) and value in known):
                continue
            log[offset] = (*known, value) if isinstance(known, tuple) else (known, value)
    return logs


def _key_log(places: dict[int, int | tuple[int, ...]]) -> KeyLog:
    offsets = array("q", sorted(places))
    log = KeyLog(offsets, array("q"))
    for index, offset in enumerate(offsets):
        value = places[offset]
        if isinstance(value, tuple):
            log.conflicts[index] = value
            value = value[0]
        log.order.append(value)
    return log
