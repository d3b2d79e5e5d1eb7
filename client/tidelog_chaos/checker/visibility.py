"""Which values were read, and which operations are therefore known to have taken effect.

``committed(op)`` is true of an ``ok``, and of an ``info`` of which an ``ok`` poll saw a send: the transaction must have
been committed, so all its sends count from then on. A ``fail`` is never committed; that its value was read is G1a.
"""

from __future__ import annotations

from array import array

from tidelog_chaos.checker.transactions import INFO, OK, UNKNOWN, Transactions


class Visibility:
    """What is known of each value and each transaction after all polls of a history."""

    def __init__(self, transactions: Transactions) -> None:
        self.first_reader = array("q", [UNKNOWN]) * len(transactions.value_names)
        """Of each value the first ``ok`` transaction that polled it, or UNKNOWN."""
        self.committed = bytearray(kind == OK for kind in transactions.types)
        """Of each transaction whether it is known to have taken effect."""
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
