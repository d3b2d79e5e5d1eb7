"""The order of the connections on which each producer sends its requests, without I/O.

Before transaction version 2, a producer keeps its epoch from one transaction to the next, so that a request of an
earlier transaction looks like one of the current transaction. A client that has lost a connection repeats its request
on another one. If the network then delivers the first request, it may end the next transaction (KAFKA-17754).

TCP delivers the requests of one connection in order, and a client opens its next connection when it has given up the
former one. A request is therefore late if the producer has since used a connection that was opened later. Clients wait
for the response to ApiVersions on each connection first, so that the server accepts their connections in the same
order.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError

UNORDERED: Final = -1
"""The connection of a request that needs no order, because its producer never sends a late one, or its caller is a
node."""
MAX_PRODUCERS: Final = 10_000
_NONE_YET: Final = -1


class LateRequestError(TidelogError):
    """A request that is not executed because it is late. Its connection must be closed (NETWORK_EXCEPTION)."""

    @classmethod
    def of(cls, producer_id: int, epoch: int) -> LateRequestError:
        """Return the error of a producer's request."""
        text = f"producer {producer_id} with epoch {epoch} has used a newer connection than that of this request"
        return cls(ErrorCode.NETWORK_EXCEPTION, text)


class ConnectionOrder:
    """The newest connection of each producer, as the time in us at which it was opened on the monotonic clock.

    ``since_us`` is the time from which this order knows all requests: a connection that was opened before counts as
    older than another one that is not known any more. The least recent of more than :data:`MAX_PRODUCERS` producers is
    forgotten; connections older than its newest one then count as older, too. A client whose connection wrongly counts
    as the older one repeats its request on a new connection.
    """

    def __init__(self, since_us: int = 0) -> None:
        self._since_us = since_us
        self._newest: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """The epoch and the newest connection by producer id, in the order of the latest use."""

    def begin(self, producer_id: int, epoch: int) -> None:
        """Record that an epoch is new: no connection has carried a request with it."""
        self._note(producer_id, epoch, _NONE_YET)

    def is_late(self, producer_id: int, epoch: int, opened_us: int) -> bool:
        """Note that a connection carries a request of a producer, and return whether a newer one did before."""
        if opened_us == UNORDERED:
            return False
        known_epoch, newest_us = self._newest.get(producer_id, (epoch, self._since_us))
        if known_epoch > epoch:
            # The epoch of the request is fenced.
            return False
        if known_epoch < epoch:
            newest_us = self._since_us
        self._note(producer_id, epoch, max(newest_us, opened_us))
        return opened_us < newest_us

    def _note(self, producer_id: int, epoch: int, newest_us: int) -> None:
        self._newest[producer_id] = (epoch, newest_us)
        self._newest.move_to_end(producer_id)
        if len(self._newest) > MAX_PRODUCERS:
            _, (_, forgotten_us) = self._newest.popitem(last=False)
            self._since_us = max(self._since_us, forgotten_us)
