"""Limits on the connections of a server's listeners: those of all together, and those of single ones (KIP-402)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.config.settings import config_keys, int_setting, parse_config, setting
from tidelog_foundation.config.validators import at_least, between
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.ssl_settings import is_listener_key, split_listener_key

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """The limits of one listener beside those of all; None for no limit of its own."""

    max_connections: int | None = None
    max_creation_rate: int | None = None
    max_idle_s: float | None = None


_NONE: Final = OwnLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server's listeners."""

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_of_ips: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """The limits of single addresses."""
    max_idle_s: float = 600.0
    of_listeners: Mapping[str, OwnLimits] = field(default_factory=lambda: MappingProxyType({}))
    """The limits of single listeners by name. They apply to the protected listener too."""

    @property
    def has_numbers(self) -> bool:
        """True if a number of connections is limited."""
        smallest = min(self.max_connections, self.max_connections_per_ip)
        return smallest < UNLIMITED or bool(self.max_connections_of_ips or self.of_listeners)

    def of_listener(self, listener: str, protected: str | None) -> int:
        """Return the maximum number of connections of a listener. ``protected`` has only a limit of its own."""
        own = self.own(listener).max_connections
        of_all = UNLIMITED if listener == protected else self.max_connections
        return of_all if own is None else min(of_all, own)

    def of_address(self, host: str) -> int:
        """Return the maximum number of connections of an address."""
        return self.max_connections_of_ips.get(host, self.max_connections_per_ip)

    def own(self, listener: str) -> OwnLimits:
        """Return the limits of one listener beside those of all."""
        return self.of_listeners.get(listener, _NONE)

    def idle_s(self, listener: str) -> float:
        """Return the time after which an idle connection of a listener is closed."""
        own = self.own(listener).max_idle_s
        return self.max_idle_s if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimitsConfig:
    """The settings of one listener's connections."""

    max_connections: int | None = int_setting(
        None, "The maximum number of connections of the listener.", between(1, UNLIMITED)
    )
    connections_max_idle_ms: int | None = setting(
        None, "The time after which an idle connection of the listener is closed, in milliseconds.", at_least(1)
    )

    def limits(self) -> OwnLimits:
        """Return the limits that the settings describe."""
        idle_ms = self.connections_max_idle_ms
        return OwnLimits(self.max_connections, max_idle_s=None if idle_ms is None else idle_ms / 1000)


LIMIT_KEYS: Final = frozenset(config_keys(OwnLimitsConfig))


def own_limits(
    properties: Mapping[str, str], listeners: Iterable[NamedListener], kind: type[OwnLimitsConfig] = OwnLimitsConfig
) -> dict[str, OwnLimits]:
    """Return the limits of the listeners that have limits of their own, by name.

    Prefixed keys that are none of ``kind`` are left out.

    Raises:
        ConfigError: A value is invalid, or a key names none of the listeners.
    """
    keys = frozenset(config_keys(kind))
    names = {listener.name.lower(): listener.name for listener in listeners}
    given: dict[str, dict[str, str]] = {}
    for key, value in properties.items():
        if is_listener_key(key) and key.endswith(tuple(f".{limit}" for limit in keys)):
            name, own = split_listener_key(key, names)
            if own in keys:
                given.setdefault(names[name], {})[own] = value
    return {name: _parsed(name, values, kind).limits() for name, values in given.items()}


def _parsed(name: str, values: Mapping[str, str], kind: type[OwnLimitsConfig]) -> OwnLimitsConfig:
    try:
        return parse_config(kind, values)
    except ConfigError as error:
        raise ConfigError(f"listener.name.{name.lower()}: {error.message}") from error
