"""The order of a connection's requests and responses.

Kafka reads a connection's next request when the previous one has been answered. Here requests of overlapping APIs begin
while others of them are in progress, so that a client's pipelined requests wait together. Clients cannot observe this:
requests begin in order, a request of another API waits for all before it, and responses are sent in the order of the
requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidelog_node.kafka.protocol.writer import Buffer


class Exchange:
    """A request that has begun.

    Once ``is_answered``, ``answer`` is the body of its response, or None for no response.
    """

    __slots__ = ("answer", "correlation_id", "has_tags", "is_answered", "overlaps", "size")

    def __init__(self, correlation_id: int, *, overlaps: bool, has_tags: bool) -> None:
        self.correlation_id = correlation_id
        self.overlaps = overlaps
        self.has_tags = has_tags
        self.is_answered = False
        self.answer: Sequence[Buffer] | None = None
        self.size = 0
        """The size of the body in bytes."""


class Pipeline:
    """The requests of a connection, ``limit`` at most, that have begun and whose responses have not been sent."""

    __slots__ = ("_exchanges", "_limit", "_under_way")

    def __init__(self, limit: int) -> None:
        self._exchanges: deque[Exchange] = deque()
        self._limit = limit
        self._under_way = 0

    def __len__(self) -> int:
        return len(self._exchanges)

    def may_begin(self, *, overlaps: bool) -> bool:
        """Return whether the next request may begin, given whether its API overlaps."""
        if not self._under_way:
            return len(self._exchanges) < self._limit
        return overlaps and self._exchanges[-1].overlaps and len(self._exchanges) < self._limit

    def begin(self, exchange: Exchange) -> None:
        """Append a request that :meth:`may_begin`."""
        assert self.may_begin(overlaps=exchange.overlaps), "a request begins out of order"
        self._exchanges.append(exchange)
        self._under_way += 1

    def answer(self, exchange: Exchange, body: Sequence[Buffer] | None) -> None:
        """Set the answer to a request, once."""
        assert not exchange.is_answered, f"request {exchange.correlation_id} is answered twice"
        exchange.answer = body
        exchange.size = sum(map(len, body)) if body is not None else 0
        exchange.is_answered = True
        self._under_way -= 1

    def remove_only(self, exchange: Exchange) -> bool:
        """Remove a request that is answered now, if no other has begun. Else return False."""
        if len(self._exchanges) != 1 or self._exchanges[0] is not exchange:
            return False
        self._exchanges.clear()
        self._under_way = 0
        return True

    def take_answered(self) -> list[Exchange]:
        """Remove and return, in order, the exchanges whose responses can be sent."""
        exchanges = self._exchanges
        taken = []
        while exchanges and exchanges[0].is_answered:
            taken.append(exchanges.popleft())
        return taken

    def clear(self) -> list[Exchange]:
        """Remove and return all exchanges."""
        left = list(self._exchanges)
        self._exchanges.clear()
        self._under_way = 0
        return left

    def check_invariants(self) -> None:
        """Assert that only requests of overlapping APIs are in progress together and that all are counted."""
        under_way = [e for e in self._exchanges if not e.is_answered]
        assert len(under_way) == self._under_way, (len(under_way), self._under_way)
        assert len(under_way) <= 1 or all(e.overlaps for e in under_way), "requests overlap that must not"
        assert len(self._exchanges) <= self._limit, (len(self._exchanges), self._limit)
