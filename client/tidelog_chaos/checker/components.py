"""Cycles in a directed graph: strongly connected components, and the shortest cycle through one of some edges.

A vertex is a number from 0. An edge weighs 1, or 0 if its vertex only connects others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

Edges = Sequence[Sequence[tuple[int, int]]]
"""The (target, weight) pairs of each vertex's edges."""


def strong_components(edges: Edges) -> list[list[int]]:
    """Return the strongly connected components with several vertices (Tarjan 1972, without recursion)."""
    return _Tarjan(edges).run()


def shortest_circle(edges: Edges, inside: Collection[int], first_edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the vertices of a cycle of minimum weight that begins with one of some edges, each of weight 1.

    The cycle uses only vertices of ``inside``. Empty if there is none.
    """
    best: list[int] = []
    least = 2 * len(edges) + 2
    for source, target in first_edges:
        found = _way(edges, inside, target, source, least - 1)
        if found is not None:
            least, best = found[0] + 1, [source, *found[1][:-1]]
        if least <= 2:
            break
    return best


def _way(edges: Edges, inside: Collection[int], start: int, end: int, limit: int) -> tuple[int, list[int]] | None:
    """Return the weight and the vertices of the lightest path, both ends included, if it weighs less than the limit."""
    distance = {start: 0}
    parent: dict[int, int] = {}
    queue: deque[tuple[int, int]] = deque([(0, start)])
    while queue:
        so_far, vertex = queue.popleft()
        if vertex == end:
            way = [end]
            while way[-1] != start:
                way.append(parent[way[-1]])
            return so_far, way[::-1]
        if so_far > distance[vertex]:
            continue
        for target, weight in edges[vertex]:
            length = so_far + weight
            if target in inside and length < distance.get(target, limit):
                distance[target] = length
                parent[target] = vertex
                (queue.append if weight else queue.appendleft)((length, target))
    return None


class _Tarjan:
    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._numbers = [0] * len(edges)
        self._lowest = [0] * len(edges)
        self._on_stack = bytearray(len(edges))
        self._stack: list[int] = []
        self._last = 0

    def run(self) -> list[list[int]]:
        found: list[list[int]] = []
        for root, number in enumerate(self._numbers):
            if not number and self._edges[root] and not self._numbers[root]:
                found.extend(self._walk(root))
        return found

    def _walk(self, root: int) -> Iterable[list[int]]:
        numbers, lowest = self._numbers, self._lowest
        self._enter(root)
        path = [(root, iter(self._edges[root]))]
        while path:
            vertex, rest = path[-1]
            for target, _ in rest:
                if not numbers[target]:
                    self._enter(target)
                    path.append((target, iter(self._edges[target])))
                    break
                if self._on_stack[target]:
                    lowest[vertex] = min(lowest[vertex], numbers[target])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[vertex])
                if lowest[vertex] == numbers[vertex]:
                    component = self._leave(vertex)
                    if len(component) > 1:
                        yield component

    def _enter(self, vertex: int) -> None:
        self._last += 1
        self._numbers[vertex] = self._lowest[vertex] = self._last
        self._stack.append(vertex)
        self._on_stack[vertex] = 1

    def _leave(self, vertex: int) -> list[int]:
        place = len(self._stack) - 1
        while self._stack[place] != vertex:
            place -= 1
        component = self._stack[place:]
        del self._stack[place:]
        for member in component:
            self._on_stack[member] = 0
        return component
