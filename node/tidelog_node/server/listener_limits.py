"""The limits of single listeners: ``listener.name.<listener>.`` before a key of :class:`OwnLimitsConfig` (KIP-402)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog_foundation.config import at_least, between, int_setting, setting
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.config.foreign import LISTENER_PREFIX, listener_limit
from tidelog_foundation.config.settings import config_keys, parse_config
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.ssl_settings import is_listener_key, split_listener_key
from tidelog_node.kafka.server.limits import OwnLimits

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimitsConfig:
    """The settings of one listener's connections."""

    max_connections: int | None = int_setting(
        None, "The maximum number of connections of the listener.", between(1, _INT32_MAX)
    )
    max_connection_creation_rate: int | None = int_setting(
        None, "The maximum rate of new connections of the listener, per second.", between(1, _INT32_MAX)
    )
    connections_max_idle_ms: int | None = setting(
        None, "The time after which an idle connection of the listener is closed, in milliseconds.", at_least(1)
    )


LIMIT_KEYS: Final = frozenset(config_keys(OwnLimitsConfig))


def own_limits(properties: Mapping[str, str], listeners: Iterable[NamedListener]) -> dict[str, OwnLimits]:
    """Return the limits of the listeners that have limits of their own, by name. Other prefixed keys are left out.

    Raises:
        ConfigError: A value is invalid, or a key names none of the listeners.
    """
    names = {listener.name.lower(): listener.name for listener in listeners}
    given: dict[str, dict[str, str]] = {}
    for key, value in properties.items():
        if is_listener_key(key) and key.endswith(tuple(f".{limit}" for limit in LIMIT_KEYS)):
            name, own = split_listener_key(key, names)
            if own in LIMIT_KEYS:
                given.setdefault(names[name], {})[own] = value
    return {name: _parsed(name, values) for name, values in given.items()}


def listener_limits(settings: Mapping[str, str], listeners: Iterable[NamedListener]) -> dict[str, str]:
    """Return the settings that are limits of these listeners and can change at run time, by their prefixed keys."""
    names = tuple(listener.name.lower() for listener in listeners)
    return {
        key: value
        for key, value in settings.items()
        if (limit := listener_limit(key)) is not None
        and key.removeprefix(LISTENER_PREFIX).removesuffix(f".{limit}") in names
    }


def _parsed(name: str, values: Mapping[str, str]) -> OwnLimits:
    try:
        config = parse_config(OwnLimitsConfig, values)
    except ConfigError as error:
        raise ConfigError(f"listener.name.{name.lower()}: {error.message}") from error
    idle_ms = config.connections_max_idle_ms
    return OwnLimits(
        config.max_connections, config.max_connection_creation_rate, None if idle_ms is None else idle_ms / 1000
    )
