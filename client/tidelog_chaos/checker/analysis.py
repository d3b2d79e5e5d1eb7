"""The check of a history: all anomalies of Jepsen's workload for logs like Kafka's (jepsen.tests.kafka), of groups, of
Kafka's transactions, and of copies.

The definitions are Jepsen's, each in the docstring of the module that finds it, together with any choice that they
leave. The check takes time proportional to the history, apart from sorting, and some 100 bytes for each value and each
line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidelog_chaos.checker.copies import copy_statistics, find_copy_faults
from tidelog_chaos.checker.copy_notes import CopyNotes
from tidelog_chaos.checker.dependencies import find_cycles
from tidelog_chaos.checker.exactly_once import find_transaction_faults, transaction_statistics
from tidelog_chaos.checker.group_notes import GroupNotes
from tidelog_chaos.checker.groups import find_group_faults, group_statistics
from tidelog_chaos.checker.lag import realtime_lag
from tidelog_chaos.checker.loss import find_exposed, find_lost
from tidelog_chaos.checker.placement import find_misplaced
from tidelog_chaos.checker.polling import consume_counts, find_disordered_polls
from tidelog_chaos.checker.replicas import ReplicaLogs, find_divergent
from tidelog_chaos.checker.sending import find_disordered_sends
from tidelog_chaos.checker.transaction_notes import TransactionNotes
from tidelog_chaos.checker.transactions import (
    FUNCTIONS,
    OK,
    TXN,
    TYPES,
    UNKNOWN,
    Transactions,
    Visibility,
    read_transactions,
)
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.history import Op
from tidelog_chaos.verdict import DEFAULT_CASES, Findings, Verdict


def check(ops: Iterable[Op], *, replica_logs: ReplicaLogs | None = None, limit: int = DEFAULT_CASES) -> Verdict:
    """Check a history, and the logs of replicas if they are given.

    ``ops`` is consumed once, in the order of the history. At most ``limit`` findings of each name are written out; all
    are counted.

    Raises:
        InvalidHistoryError: An operation's value cannot be parsed.
    """
    group, of_transactions, copies = GroupNotes(), TransactionNotes(), CopyNotes()
    transactions = read_transactions(group.taking(of_transactions.taking(copies.taking(ops))))
    visibility = Visibility(transactions)
    versions = VersionOrders(transactions, visibility)
    findings = Findings(limit)
    find_misplaced(transactions, versions, findings)
    find_lost(transactions, visibility, versions, findings)
    find_exposed(transactions, versions, findings)
    find_disordered_polls(transactions, versions, findings)
    find_disordered_sends(transactions, versions, findings)
    find_cycles(transactions, versions, findings)
    find_group_faults(transactions, group, findings)
    find_transaction_faults(transactions, visibility, versions, of_transactions, findings)
    find_copy_faults(transactions, visibility, versions, copies, findings)
    find_divergent(replica_logs or {}, findings)
    statistics = _statistics(transactions, visibility, versions)
    statistics["group"] = group_statistics(group)
    statistics["transactions"] = transaction_statistics(transactions, of_transactions)
    statistics["copies"] = copy_statistics(transactions, visibility, copies)
    statistics["partitions_compared"] = len(replica_logs or {})
    findings.notes.extend(_notes(transactions, statistics))
    return findings.verdict(statistics)


def _notes(transactions: Transactions, statistics: dict[str, Any]) -> Iterator[str]:
    if not statistics["values"]["acknowledged"]:
        yield "No send was acknowledged: there was nothing to lose."
    elif not statistics["values"]["read"]:
        yield "No value was polled: a check needs readers."
    if transactions.resent:
        key, value = transactions.name(next(iter(transactions.resent)))
        count = len(transactions.resent)
        who = (
            "1 value was sent more than once to its key" if count == 1 else f"{count:,} values were sent more than once"
        )
        yield f"{who}, such as {value} to {key}: which send a poll saw cannot be told. The last one counts."
    if transactions.unknown_functions:
        counts = ", ".join(f"{name} ({count:,})" for name, count in sorted(transactions.unknown_functions.items())[:8])
        yield f"Operations that are not known were passed over: {counts}."


def _statistics(transactions: Transactions, visibility: Visibility, versions: VersionOrders) -> dict[str, Any]:
    outcomes: dict[str, dict[str, int]] = {}
    for function, kind in zip(transactions.functions, transactions.types, strict=True):
        counts = outcomes.setdefault(FUNCTIONS[function], dict.fromkeys(TYPES, 0))
        counts[TYPES[kind]] += 1
    acknowledged = bytearray(len(transactions.value_names))
    for transaction, value, _ in transactions.sends():
        acknowledged[value] |= transactions.types[transaction] == OK
    return {
        "operations": outcomes,
        "keys": len(transactions.keys),
        "values": {
            "sent": sum(writer != UNKNOWN for writer in transactions.writers),
            "acknowledged": sum(acknowledged),
            "read": sum(reader != UNKNOWN for reader in visibility.first_reader),
            "placed": sum(index != UNKNOWN for index in versions.index_of),
        },
        "duration_s": round((max(transactions.times_ns, default=0) - _start_ns(transactions)) / 1e9, 3),
        "unknown_causes": _unknown_causes(transactions),
        "realtime_lag": realtime_lag(transactions),
        "consume_counts": consume_counts(transactions),
    }


def _start_ns(transactions: Transactions) -> int:
    return min(transactions.invoke_times_ns, default=0)


def _unknown_causes(transactions: Transactions) -> dict[str, int]:
    """Return the errors of transactions of unknown outcome with their counts, most frequent first."""
    causes: dict[str, int] = {}
    for transaction, error in transactions.errors.items():
        if TYPES[transactions.types[transaction]] == "info" and transactions.functions[transaction] <= TXN:
            causes[error] = causes.get(error, 0) + 1
    return dict(sorted(causes.items(), key=lambda cause: -cause[1])[:16])
