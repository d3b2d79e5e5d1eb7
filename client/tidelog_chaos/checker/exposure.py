"""Values that polls should not have returned: G1a, precommitted-read and phantom-read.

G1a is an ``ok`` poll of a value whose send failed. A precommitted-read is a transaction of any outcome that polls a
value that it sent itself: consumers see committed values, and a transaction in progress is not committed. A
phantom-read is a value that nobody sent; Jepsen's analysis stops at one. It counts only for keys to which the history
sends, because others may have had values before it began, and not at an offset that held another value too, which
inconsistent-offsets reports.
"""

from __future__ import annotations

from tidelog_chaos.checker.transactions import FAIL, OK, UNKNOWN, Transactions
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.verdict import Case, Findings


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
