"""The values that were read, and the operations that are therefore known to have taken effect.

``committed(op)`` is true of an ``ok``, and of an ``info`` with a send that an ``ok`` poll saw: its transaction must
have committed, so all its sends count. A ``fail`` is never committed; a read of its value is G1a.
"""

from __future__ import annotations

from array import array

from tidelog_chaos.checker.transactions import INFO, OK, UNKNOWN, Transactions


class Visibility:
    """The visibility of each value and each transaction after all polls of a history."""

    def __init__(self, transactions: Transactions) -> None:
        self.first_reader = array("q", [UNKNOWN]) * len(transactions.value_names)
        """The first ``ok`` transaction that polled each value, or UNKNOWN."""
        self.committed = bytearray(kind == OK for kind in transactions.types)
        """True for each transaction that is known to have taken effect."""
        for transaction, value, _ in transactions.reads():
            if transactions.types[transaction] == OK and self.first_reader[value] == UNKNOWN:
                self.first_reader[value] = transaction
        for transaction, value, _ in transactions.sends():
            if transactions.types[transaction] == INFO and self.first_reader[value] != UNKNOWN:
                self.committed[transaction] = 1

    def is_committed_value(self, transactions: Transactions, value: int) -> bool:
        """Return whether the value has a writer that is known to have taken effect."""
        writer = transactions.writers[value]
        return writer != UNKNOWN and bool(self.committed[writer])
