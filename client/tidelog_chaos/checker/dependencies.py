"""The graph of dependencies between transactions, limited to those that may lie on a cycle.

- ww: from the writer of a value to the writer of the next one in the key's order;
- wr: from the writer of a value to every transaction that polled it;
- realtime: from an ``ok`` transaction to all that were invoked after its completion and did not fail, as in Elle.

Each transaction has a latest time at which it took effect: when it completed, before the first poll of a value that it
sent, before the next value of the key. Most edges go forward in that time. A cycle goes back at least once, and lies
within the time that its backward edges span together; a healthy history has few such spans, and only transactions in
them become vertices. Realtime edges run over a chain with a vertex per completion, which keeps their number small.

A cycle of ww edges, possibly with realtime ones, is G0: transactions wrote in orders that contradict each other, or
real time. One with wr edges is G1c. Writes of transactions are not isolated in a log like Kafka's: they are in the log,
in any order, before the transaction commits. So cycles with a ww edge are permitted. A G1c of wr and realtime edges
alone is an anomaly: information returned to its origin, or arrived before it was sent. For each set of transactions
that depend on each other in cycles, a short one is shown; ``steps`` has its edges.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final, Literal, NamedTuple

from tidelog_chaos.checker.components import shortest_circle, strong_components
from tidelog_chaos.checker.transactions import FAIL, OK, TXN, UNKNOWN, Transactions
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.history import merge_spans
from tidelog_chaos.verdict import Case, Findings

Kind = Literal["ww", "wr", "realtime"]
WW: Final[Kind] = "ww"
WR: Final[Kind] = "wr"
REALTIME: Final[Kind] = "realtime"

_SHIFT = 20
_FIRST_EDGES = 24
"""The number of a component's edges from which the search for the shortest cycle starts."""


class Step(NamedTuple):
    """An edge of a cycle. Of ww the values are the earlier and the later one; of wr both are the one that was read."""

    kind: Kind
    source: int
    target: int
    value: int
    next_value: int


class Times:
    """The latest time at which each transaction took effect, as ascending numbers without a unit."""

    def __init__(self, transactions: Transactions, versions: VersionOrders) -> None:
        self._transactions = transactions
        writers = transactions.writers
        self.of = array("q", (min(position, 2**40) << _SHIFT for position in transactions.positions))
        for reader, value, _ in transactions.reads():
            if (writer := writers[value]) not in (UNKNOWN, reader):
                self.of[writer] = min(self.of[writer], (transactions.positions[reader] << _SHIFT) - 1)
        for log in versions.logs:
            for place in range(len(log.order) - 2, -1, -1):
                writer, following = writers[log.order[place]], writers[log.order[place + 1]]
                if UNKNOWN not in (writer, following) and writer != following:
                    self.of[writer] = min(self.of[writer], self.of[following] - 1)

    def stretches(self, edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the spans of the backward edges, with touching ones merged, both ends included."""
        spans = [(self.of[target], self.of[source]) for source, target in edges if self.of[target] <= self.of[source]]
        for transaction, position in enumerate(self._transactions.invoke_positions):
            if self.of[transaction] < position << _SHIFT:
                spans.append((self.of[transaction], position << _SHIFT))
        return merge_spans(spans)


class Dependencies:
    """The graph of some kinds of edges and of realtime ones; :attr:`components` are those with cycles."""

    def __init__(
        self, transactions: Transactions, versions: VersionOrders, times: Times, kinds: Collection[Kind]
    ) -> None:
        self._transactions = transactions
        self._versions = versions
        self._kinds = kinds
        self._vertices = self._inside(times, times.stretches((step.source, step.target) for step in self._steps()))
        self._number = {transaction: number for number, transaction in enumerate(self._vertices)}
        self._edges: list[list[tuple[int, int]]] = [[] for _ in self._vertices]
        self._labels: dict[tuple[int, int], Step] = {}
        self.components: list[list[int]] = []
        """The vertices of each; a transaction's is below :attr:`count`."""
        self.count = len(self._vertices)
        if self._vertices:
            self._add_steps()
            self._add_realtime()
            self.components = strong_components(self._edges)

    def transactions_of(self, component: Collection[int]) -> list[int]:
        """Return the transactions of a component."""
        return [self._vertices[vertex] for vertex in component if vertex < self.count]

    def has(self, component: Collection[int], kind: Kind) -> bool:
        """Return whether an edge of a kind is part of a component, and so of a cycle."""
        return any(True for _ in self._edges_of(component, kind))

    def circle(self, component: Collection[int], kind: Kind) -> list[Step]:
        """Return a short cycle of a component that has an edge of a kind."""
        inside = set(component)
        way = shortest_circle(self._edges, inside, islice(self._edges_of(component, kind), _FIRST_EDGES))
        stops = [vertex for vertex in way if vertex < self.count]
        between = zip(stops, [*stops[1:], stops[0]], strict=True)
        return [self._step(way, source, target) for source, target in between]

    def _step(self, way: list[int], source: int, target: int) -> Step:
        follows = way[(way.index(source) + 1) % len(way)]
        if follows == target and (source, target) in self._labels:
            return self._labels[source, target]
        return Step(REALTIME, self._vertices[source], self._vertices[target], UNKNOWN, UNKNOWN)

    def _edges_of(self, component: Collection[int], kind: Kind) -> Iterator[tuple[int, int]]:
        inside = set(component)
        for source in sorted(component):
            for target, _ in self._edges[source]:
                if target in inside:
                    label = self._labels.get((source, target))
                    if label is not None and label.kind == kind:
                        yield source, target

    def _inside(self, times: Times, stretches: list[tuple[int, int]]) -> list[int]:
        if not stretches:
            return []
        starts = [first for first, _ in stretches]
        vertices = []
        for transaction, function in enumerate(self._transactions.functions):
            place = bisect_right(starts, times.of[transaction]) - 1
            if function <= TXN and place >= 0 and times.of[transaction] <= stretches[place][1]:
                vertices.append(transaction)
        return vertices

    def _steps(self) -> Iterator[Step]:
        if WR in self._kinds:
            yield from self._wr_steps()
        if WW in self._kinds:
            yield from self._ww_steps()

    def _wr_steps(self) -> Iterator[Step]:
        writers = self._transactions.writers
        last = (UNKNOWN, UNKNOWN)
        for reader, value, _ in self._transactions.reads():
            writer = writers[value]
            if writer not in (UNKNOWN, reader) and (writer, reader) != last:
                last = (writer, reader)
                yield Step(WR, writer, reader, value, value)

    def _ww_steps(self) -> Iterator[Step]:
        writers = self._transactions.writers
        for log in self._versions.logs:
            for place in range(1, len(log.order)):
                value, following = log.order[place - 1], log.order[place]
                source, target = writers[value], writers[following]
                if UNKNOWN not in (source, target) and source != target:
                    yield Step(WW, source, target, value, following)

    def _add_steps(self) -> None:
        for step in self._steps():
            source, target = self._number.get(step.source), self._number.get(step.target)
            if source is not None and target is not None and (source, target) not in self._labels:
                self._labels[source, target] = step
                self._edges[source].append((target, 1))

    def _add_realtime(self) -> None:
        columns = self._transactions
        done = sorted(
            (columns.positions[transaction], vertex)
            for vertex, transaction in enumerate(self._vertices)
            if columns.types[transaction] == OK
        )
        positions = [position for position, _ in done]
        for place, (_, vertex) in enumerate(done):
            self._edges[vertex].append((self.count + place, 1))
            self._edges.append([(self.count + place + 1, 0)] if place + 1 < len(done) else [])
        for vertex, transaction in enumerate(self._vertices):
            before = bisect_left(positions, columns.invoke_positions[transaction]) - 1
            if before >= 0 and columns.types[transaction] != FAIL:
                self._edges[self.count + before].append((vertex, 0))


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
