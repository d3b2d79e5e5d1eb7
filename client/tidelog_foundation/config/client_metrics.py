"""The settings of a subscription to the metrics of clients: the resource CLIENT_METRICS (KIP-714)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.config.settings import config_key, dynamic_int_setting, dynamic_setting, parse_config
from tidelog_foundation.config.validators import between
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

DEFAULT_INTERVAL_MS: Final = 300_000
ALL_METRICS: Final = "*"
"""The element of ``metrics`` that subscribes all metrics."""
MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The facts about a client that a pattern can name."""
MAX_NAME_BYTES: Final = 255
MAX_SUBSCRIPTIONS: Final = 200
"""The maximum number of subscriptions, each of which is compared with each client."""


def parse_matches(text: str) -> dict[str, str]:
    """Return the pattern of each fact in ``client_id=reports.*,client_source_address=10\\.0\\..*``.

    Raises:
        ValueError: An element is not KEY=PATTERN, or names another fact.
    """
    patterns: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, pattern = (each.strip() for each in part.partition("="))
        if not equals or not pattern or key not in MATCH_KEYS:
            raise ValueError(f'"{part}" is not KEY=PATTERN with one of the keys {", ".join(MATCH_KEYS)}')
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f'"{pattern}" is no regular expression: {error}') from error
        patterns[key] = pattern
    return patterns


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """A subscription. Without ``match`` it applies to all clients."""

    interval_ms: int = dynamic_int_setting(
        DEFAULT_INTERVAL_MS, "The interval at which clients push, in milliseconds.", between(100, 3_600_000)
    )
    metrics: str = dynamic_setting(
        "", "The prefixes of the names of the subscribed metrics; * subscribes all of them.", config_type="LIST"
    )
    match: str = dynamic_setting(
        "",
        f"The clients, by regular expressions: KEY=PATTERN,... The keys are {', '.join(MATCH_KEYS)}.",
        parse_matches,
        config_type="LIST",
    )

    def prefixes(self) -> frozenset[str]:
        """Return the prefixes of the subscribed metrics."""
        return frozenset(filter(None, map(str.strip, self.metrics.split(","))))


CLIENT_METRICS_KEYS: Final = tuple(map(config_key, dataclasses.fields(ClientMetricsConfig)))


def check_subscription(name: str, settings: Mapping[str, str]) -> None:
    """Check a subscription's name and settings, with Kafka's error for all of it (ClientMetricsConfigs.validate).

    Raises:
        TidelogError: INVALID_REQUEST, with the value and the limit.
    """
    size = len(name.encode())
    if not 0 < size <= MAX_NAME_BYTES:
        text = f"the name of a subscription has {size} bytes, it must have 1 to {MAX_NAME_BYTES}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    try:
        parse_config(ClientMetricsConfig, settings)
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_REQUEST, error.message) from error
