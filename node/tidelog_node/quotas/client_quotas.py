"""The client quotas of a node: their limits in the newest image, and what each client has used.

A node enforces its quotas alone: a client of three nodes can use three times its limits, as in Kafka. Only mutations of
topics are limited by the leading controller, for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from tidelog_foundation.quotas.limits import AddressLimits, ClientLimits
from tidelog_foundation.quotas.meters import Meters
from tidelog_foundation.quotas.rate import Windows
from tidelog_foundation.requests.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from tidelog_node.quotas.throttle_counts import ThrottleCounts

_DEFAULT: Final = Windows()


class QuotaKind(Enum):
    """The requests that a quota governs."""

    PRODUCE = auto()
    FETCH = auto()
    MUTATION = auto()
    REQUEST = auto()
    """All requests; the value is their share of the event loop's time in percent."""


class ClientQuotas:
    """The quotas of a node, used on its event loop. ``now_ms`` and ``now_ns`` read one monotonic clock each."""

    def __init__(self, now_ms: Callable[[], int], now_ns: Callable[[], int], windows: Windows = _DEFAULT) -> None:
        self.now_ms = now_ms
        self.now_ns = now_ns
        self.windows = windows
        self.is_enabled = False
        """True if any client has a limit. While it is False, requests are not measured."""
        self.produce = Meters(windows)
        self.fetch = Meters(windows)
        self.request = Meters(windows, longest_ms=windows.window_ms)
        self.mutation = Meters(windows)
        """The delays that the controller's answers ask for."""
        self.addresses = AddressLimits({}, CONNECTION_CREATION_RATE)
        self.throttled = ThrottleCounts(QuotaKind)
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply the quotas of an image."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self.produce.change_limits(ClientLimits(quotas, PRODUCER_BYTE_RATE))
        self.fetch.change_limits(ClientLimits(quotas, CONSUMER_BYTE_RATE))
        self.request.change_limits(ClientLimits(quotas, REQUEST_PERCENTAGE))
        self.mutation.change_limits(ClientLimits(quotas, CONTROLLER_MUTATION_RATE))
        self.addresses = AddressLimits(quotas, CONNECTION_CREATION_RATE)
        self.is_enabled = any(meters.is_enabled for meters in (self.produce, self.fetch, self.request, self.mutation))

    def delay_ms(self, kind: QuotaKind, user: str, client_id: str) -> int:
        """Return the milliseconds for which a client's next request of a kind is delayed."""
        now_ms, delay_ms = self.now_ms(), 0
        for meters in (self.request, self._meters_of(kind)):
            if meters.is_enabled:
                delay_ms = max(delay_ms, meters.delay_ms(user, client_id, now_ms))
        return delay_ms

    def _meters_of(self, kind: QuotaKind) -> Meters:
        match kind:
            case QuotaKind.PRODUCE:
                return self.produce
            case QuotaKind.FETCH:
                return self.fetch
            case QuotaKind.MUTATION:
                return self.mutation
            case QuotaKind.REQUEST:
                return self.request
