"""The client instances that push metrics to a node, and the rules for their requests (KIP-714), without I/O.

Rules, those of Kafka's ``ClientMetricsManager``:

- a client gets its subscriptions at once, then not before its push interval has passed, unless the subscriptions have
  changed or its last push was refused because of the subscription or the compression;
- after it got its subscriptions, its next push is accepted at any time, since clients vary the interval; later pushes
  are accepted once the interval has passed, a terminating one always and only once;
- a push with another subscription id is refused, so that the client gets its subscriptions again;
- an instance is forgotten after three intervals without a request, at least a minute. The least recently used one is
  forgotten if there are too many.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field
from math import inf
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.telemetry.subscriptions import ClientFacts, Subscribed

MAX_INSTANCES: Final = 16_384
_MIN_EXPIRY_MS: Final = 60_000
_INTERVALS: Final = 3
_SWEEP_MS: Final = 10_000
_ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@dataclass(slots=True)
class ClientInstance:
    """One client as this node knows it. Times are those of the last accepted request of each kind."""

    facts: ClientFacts
    subscribed: Subscribed
    version: int
    """The version of the subscriptions that ``subscribed`` is of."""
    got_ms: float = field(default=-inf)
    pushed_ms: float = field(default=-inf)
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    expires_ms: float = 0

    def use(self, now_ms: int) -> None:
        """Note a request."""
        self.expires_ms = now_ms + max(_MIN_EXPIRY_MS, _INTERVALS * self.subscribed.interval_ms)

    def get(self, now_ms: int) -> None:
        """Accept a request for the subscriptions.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED, it is too early.
        """
        is_due = now_ms - max(self.got_ms, self.pushed_ms) >= self.subscribed.interval_ms
        if not is_due and self.last_error not in _ASKS_AGAIN:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._early("asked for its subscriptions"))
        if is_due:
            self.got_ms = now_ms
        self.last_error = ErrorCode.NONE

    def push(self, subscription_id: int, *, is_terminating: bool, now_ms: int) -> None:
        """Accept a push.

        Raises:
            TidelogError: INVALID_REQUEST after a terminating push, THROTTLING_QUOTA_EXCEEDED if it is too early,
                UNKNOWN_SUBSCRIPTION_ID.
        """
        was_terminating, self.is_terminating = self.is_terminating, is_terminating or self.is_terminating
        if was_terminating:
            text = f"client instance {self.facts.client_instance_id} has pushed before that it terminates"
            raise error_for(ErrorCode.INVALID_REQUEST, text)
        is_due = self.got_ms > self.pushed_ms or now_ms - self.pushed_ms >= self.subscribed.interval_ms
        if is_due:
            self.pushed_ms = now_ms
        elif not is_terminating:
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._early("pushed"))
        if subscription_id != self.subscribed.subscription_id:
            text = (
                f"client instance {self.facts.client_instance_id} pushed for the subscription {subscription_id}, its "
                f"current one is {self.subscribed.subscription_id}"
            )
            raise error_for(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, text)

    def _early(self, action: str) -> str:
        return (
            f"client instance {self.facts.client_instance_id} {action} before its interval of "
            f"{self.subscribed.interval_ms} ms was over"
        )


class ClientInstances:
    """The instances by id, the least recently used first."""

    def __init__(self, max_instances: int = MAX_INSTANCES) -> None:
        self._max_instances = max_instances
        self._known: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._swept_ms = -inf

    def __len__(self) -> int:
        return len(self._known)

    def find(self, instance_id: bytes) -> ClientInstance | None:
        """Return an instance, or None."""
        found = self._known.get(instance_id)
        if found is not None:
            self._known.move_to_end(instance_id)
        return found

    def put(self, instance_id: bytes, instance: ClientInstance) -> list[bytes]:
        """Store an instance, and return the ids of those that it displaces."""
        self._known[instance_id] = instance
        self._known.move_to_end(instance_id)
        displaced = []
        while len(self._known) > self._max_instances:
            displaced.append(self._known.popitem(last=False)[0])
        return displaced

    def sweep(self, now_ms: int) -> list[bytes]:
        """Forget the expired instances, at most every ten seconds, and return their ids."""
        if now_ms - self._swept_ms < _SWEEP_MS:
            return []
        self._swept_ms = now_ms
        expired = [key for key, each in self._known.items() if each.expires_ms <= now_ms]
        for key in expired:
            del self._known[key]
        return expired
