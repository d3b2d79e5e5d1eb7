"""Cycles of dependencies between transactions: G0 and G1c.

A cycle of ww edges (see `dependencies`), possibly with realtime ones, is G0: transactions wrote in orders that
contradict each other, or real time. One with wr edges is G1c. Writes of transactions are not isolated in a log like
Kafka's: they are in the log, in any order, before the transaction commits. So cycles with a ww edge are permitted. A
G1c of wr and realtime edges alone is an anomaly: information returned to its origin, or arrived before it was sent. For
each set of transactions that depend on each other in cycles, a short one is shown; ``steps`` has its edges.
"""

from __future__ import annotations

from tidelog_chaos.checker.dependencies import REALTIME, WR, WW, Dependencies, Kind, Step, Times
from tidelog_chaos.checker.transactions import Transactions
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.verdict import Case, Findings


def find_cycles(transactions: Transactions, versions: VersionOrders, findings: Findings) -> None:
    """Add G1c of wr and realtime edges, and, as permitted, G0 and G1c with ww edges."""
    times = Times(transactions, versions)
    reported: set[int] = set()
    flow = Dependencies(transactions, versions, times, (WR,))
    for component in flow.components:
        reported.update(flow.transactions_of(component))
        _add(findings, "G1c", flow, component, WR, transactions, permitted=False)
    writes = Dependencies(transactions, versions, times, (WW,))
    for component in writes.components:
        _add(findings, "G0", writes, component, WW, transactions, permitted=True)
    mixed = Dependencies(transactions, versions, times, (WR, WW))
    for component in mixed.components:
        if reported.isdisjoint(mixed.transactions_of(component)) and mixed.has(component, WR):
            _add(findings, "G1c", mixed, component, WR, transactions, permitted=True)


def _add(
    findings: Findings,
    name: str,
    graph: Dependencies,
    component: list[int],
    kind: Kind,
    transactions: Transactions,
    permitted: bool,
) -> None:
    findings.add(name, lambda: _case(transactions, graph.circle(component, kind)), permitted)


def _case(transactions: Transactions, circle: list[Step]) -> Case:
    ways = " → ".join(f"{transactions.indexes[step.source]} {step.kind}" for step in circle)
    return {
        "text": f"operations depend on each other: {ways} → {transactions.indexes[circle[0].source]}",
        "steps": [_step(transactions, step) for step in circle],
        "ops": [transactions.as_operation(step.source, _values(circle, step.source)) for step in circle],
    }


def _values(circle: list[Step], transaction: int) -> list[int]:
    """Return the values that put a transaction on the cycle."""
    values = [step.value for step in circle if transaction in (step.source, step.target)]
    following = [step.next_value for step in circle if transaction in (step.source, step.target)]
    return [value for value in (*values, *following) if value >= 0]


def _step(transactions: Transactions, step: Step) -> Case:
    edge: Case = {
        "type": step.kind,
        "from": transactions.indexes[step.source],
        "to": transactions.indexes[step.target],
    }
    if step.kind != REALTIME:
        edge["key"], edge["value"] = transactions.name(step.value)
    if step.kind == WW:
        edge["next_value"] = transactions.value_names[step.next_value]
    return edge
