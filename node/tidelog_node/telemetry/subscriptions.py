"""The subscriptions of the cluster to the metrics of clients, and those that apply to a client (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from crc32c import crc32c

from tidelog_foundation.config import parse_config
from tidelog_foundation.config.client_metrics import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    ClientMetricsConfig,
    parse_matches,
)
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.shards.name_regex import NameRegex

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """The facts about a client that subscriptions match, by the names of KIP-714."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription:
    """One subscription with its compiled patterns.

    Raises:
        TidelogError: INVALID_CONFIG, a setting is invalid; INVALID_REGULAR_EXPRESSION, RE2 refuses a pattern.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        config = parse_config(ClientMetricsConfig, settings)
        self.metrics = config.prefixes()
        self.interval_ms = config.interval_ms
        self._patterns = {key: NameRegex(pattern) for key, pattern in parse_matches(config.match).items()}

    def applies_to(self, client: ClientFacts) -> bool:
        """Return whether all patterns match the client."""
        return all(pattern.matches(getattr(client, key)) for key, pattern in self._patterns.items())


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The sum of the subscriptions that apply to a client. ``subscription_id`` changes with them."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


def subscribed(subscriptions: Iterable[Subscription], client: ClientFacts, instance_id: bytes) -> Subscribed:
    """Return the union of the metrics and the shortest interval, at most the default.

    The id is the CRC-32C of both, combined with the client's instance id, a signed number of 32 bits. It is the same on
    all nodes.
    """
    applying = [subscription for subscription in subscriptions if subscription.applies_to(client)]
    names = frozenset[str]().union(*(subscription.metrics for subscription in applying))
    metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
    interval_ms = min((subscription.interval_ms for subscription in applying), default=DEFAULT_INTERVAL_MS)
    checksum = crc32c(f"{','.join(metrics)} {interval_ms}".encode())
    for start in range(0, len(instance_id), 4):
        checksum ^= int.from_bytes(instance_id[start : start + 4], "big")
    checksum &= _MASK
    return Subscribed(metrics, interval_ms, checksum - (_MASK + 1) if checksum & _SIGN else checksum)


def compiled(settings: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, Subscription], dict[str, TidelogError]]:
    """Return the subscriptions by name, and the errors of those that this node cannot use."""
    usable: dict[str, Subscription] = {}
    errors: dict[str, TidelogError] = {}
    for name, each in sorted(settings.items()):
        try:
            usable[name] = Subscription(each)
        except TidelogError as error:
            errors[name] = error.detached()
    return usable, errors
