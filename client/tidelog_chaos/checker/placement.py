"""The places of values in the log: one value per offset (inconsistent-offsets), one offset per value (duplicate)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tidelog_chaos.checker.transactions import UNKNOWN, Transactions
from tidelog_chaos.checker.versions import KeyLog, VersionOrders
from tidelog_chaos.verdict import Case, Findings

_SHOWN = 8


def find_misplaced(transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
    """Add inconsistent-offsets and duplicate."""
    witnesses = _Witnesses(transactions, versions)
    for log in versions.logs:
        for index in log.conflicts:
            findings.add("inconsistent-offsets", partial(witnesses.conflict, log, index))
    for value, offsets in versions.repeated.items():
        findings.add("duplicate", partial(witnesses.duplicate, value, offsets))


class _Witnesses:
    """Finds the operations that saw a value at an offset; scans the history once, at the first use."""

    def __init__(self, transactions: Transactions, versions: VersionOrders) -> None:
        self._transactions = transactions
        self._versions = versions
        self._known: Mapping[tuple[int, int], int] | None = None

    def conflict(self, log: KeyLog, index: int) -> Case:
        offset = log.offsets[index]
        values = log.conflicts[index]
        key, _ = self._transactions.name(values[0])
        names = [self._transactions.value_names[value] for value in values]
        return {
            "text": f"{key}: offset {offset} held {' and '.join(map(str, names[:_SHOWN]))}",
            "key": key,
            "offset": offset,
            "index": index,
            "values": names,
            "ops": self._operations([(value, offset) for value in values]),
        }

    def duplicate(self, value: int, offsets: Sequence[int]) -> Case:
        key, name = self._transactions.name(value)
        return {
            "text": f"{key}: value {name} is at the offsets {', '.join(map(str, offsets[:_SHOWN]))}",
            "key": key,
            "value": name,
            "count": len(offsets),
            "offsets": list(offsets),
            "ops": self._operations([(value, offset) for offset in offsets]),
        }

    def _operations(self, places: Sequence[tuple[int, int]]) -> list[dict[str, object]]:
        if self._known is None:
            self._known = self._look()
        writers = [self._transactions.writers[value] for value, _ in places]
        seen = [self._known[place] for place in places if place in self._known]
        near = {value for value, _ in places}
        behind = sorted({transaction for transaction in (*writers, *seen) if transaction != UNKNOWN})
        return [self._transactions.as_operation(transaction, near) for transaction in behind[: 2 * _SHOWN]]

    def _look(self) -> Mapping[tuple[int, int], int]:
        """Return the first transaction that saw each doubtful value at each of its offsets."""
        doubtful = set(self._versions.repeated)
        for log in self._versions.logs:
            doubtful.update(*log.conflicts.values())
        seen: dict[tuple[int, int], int] = {}
        for entries in (self._transactions.reads(), self._transactions.sends()):
            for transaction, value, offset in entries:
                if value in doubtful:
                    seen.setdefault((value, offset), transaction)
        return seen
