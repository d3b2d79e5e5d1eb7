"""The order of a connection's requests and responses.

Kafka reads a connection's next request when the one before has been answered. Here those of APIs that overlap begin
while others of them are under way, so that a client's pipelined requests wait together; nobody can tell, because they
begin in order, what is not of these APIs waits for all before it, and responses leave in the order of the requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidelog_node.kafka.protocol.writer import Buffer


class Exchange:
    """A request that has begun. ``answer`` is its response's body, when ``is_answered``; None for none at all."""

    __slots__ = ("answer", "correlation_id", "has_tags", "is_answered", "overlaps", "size")

    def __init__(self, correlation_id: int, *, overlaps: bool, has_tags: bool) -> None:
        self.correlation_id = correlation_id
        self.overlaps = overlaps
        self.has_tags = has_tags
        self.is_answered = False
        self.answer: Sequence[Buffer] | None = None
        self.size = 0
        """The bytes of the body."""


class Pipeline:
    """The requests of a connection that have begun and whose responses have not left, ``limit`` at most."""

    __slots__ = ("_exchanges", "_limit", "_under_way")

    def __init__(self, limit: int) -> None:
        self._exchanges: deque[Exchange] = deque()
        self._limit = limit
        self._under_way = 0

    def __len__(self) -> int:
        return len(self._exchanges)

    def may_begin(self, *, overlaps: bool) -> bool:
        """Return whether the next request may begin, of an API that overlaps or not."""
        if not self._under_way:
            return len(self._exchanges) < self._limit
        return overlaps and self._exchanges[-1].overlaps and len(self._exchanges) < self._limit

    def begin(self, exchange: Exchange) -> None:
        """Put a request behind the others; it :meth:`may_begin`."""
        assert self.may_begin(overlaps=exchange.overlaps), "a request begins out of order"
        self._exchanges.append(exchange)
        self._under_way += 1

    def answer(self, exchange: Exchange, body: Sequence[Buffer] | None) -> None:
        """Take the answer to a request, once."""
        assert not exchange.is_answered, f"request {exchange.correlation_id} is answered twice"
        exchange.answer = body
        exchange.size = sum(map(len, body)) if body is not None else 0
        exchange.is_answered = True
        self._under_way -= 1

    def take_answered(self) -> list[Exchange]:
        """Return the exchanges whose responses may leave, in order; they are over."""
        exchanges = self._exchanges
        taken = []
        while exchanges and exchanges[0].is_answered:
            taken.append(exchanges.popleft())
        return taken

    def clear(self) -> list[Exchange]:
        """Return all exchanges, and forget them."""
        left = list(self._exchanges)
        self._exchanges.clear()
        self._under_way = 0
        return left

    def check_invariants(self) -> None:
        """Only requests of overlapping APIs are under way together, and all are counted."""
        under_way = [e for e in self._exchanges if not e.is_answered]
        assert len(under_way) == self._under_way, (len(under_way), self._under_way)
        assert len(under_way) <= 1 or all(e.overlaps for e in under_way), "requests overlap that must not"
        assert len(self._exchanges) <= self._limit, (len(self._exchanges), self._limit)
