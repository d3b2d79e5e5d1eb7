"""The settings of the connections of a controller's listeners, with Kafka's keys and defaults (SocketServerConfigs)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidelog_foundation.config import at_least, between, int_setting, setting
from tidelog_foundation.config.connections import UNLIMITED, ConnectionLimits, OwnLimits
from tidelog_foundation.config.validators import address_limits, parse_address_limits
from tidelog_foundation.dataclass import dataclass


# Not slotted: the settings of a controller inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The settings of connections in a controller's properties file."""

    max_connections: int = int_setting(
        UNLIMITED,
        "The maximum number of connections of each listener; further ones are closed immediately. If there are several "
        "listeners, it does not apply to the first of controller.listener.names, at which controllers call each other. "
        "listener.name.<name>.max.connections limits one listener in addition.",
        between(1, UNLIMITED),
    )
    max_connections_per_ip: int = int_setting(
        UNLIMITED,
        "The maximum number of connections with calls from one address; calls of further ones are refused. If there "
        "are several listeners, connections to the first of controller.listener.names neither count nor are refused. "
        "0 needs max.connections.per.ip.overrides.",
        between(0, UNLIMITED),
    )
    max_connections_per_ip_overrides: str = setting(
        "",
        "The maximum number of connections from single addresses, in place of max.connections.per.ip: "
        "address:number,address:number,... An IPv6 address is in brackets.",
        address_limits,
    )
    connections_max_idle_ms: int = setting(
        600_000,
        "The time after which a connection without calls in progress is closed, in milliseconds. "
        "listener.name.<name>.connections.max.idle.ms replaces it for one listener.",
        at_least(1),
    )

    def limits_with(self, of_listeners: Mapping[str, OwnLimits]) -> ConnectionLimits:
        """Return the limits of all listeners, with those of single ones by name."""
        return ConnectionLimits(
            max_connections=self.max_connections,
            max_connections_per_ip=self.max_connections_per_ip,
            max_connections_of_ips=MappingProxyType(parse_address_limits(self.max_connections_per_ip_overrides)),
            max_idle_s=self.connections_max_idle_ms / 1000,
            of_listeners=of_listeners,
        )

    def check_connections(self, login_delay_ms: int) -> None:
        """Raise ValueError if limits contradict each other, or connections end before the answer to a failed login."""
        if not self.max_connections_per_ip and not self.max_connections_per_ip_overrides:
            raise ValueError("max.connections.per.ip is 0, which needs max.connections.per.ip.overrides")
        if login_delay_ms >= self.connections_max_idle_ms:
            raise ValueError(
                f"connection.failed.authentication.delay.ms {login_delay_ms} must be less than "
                f"connections.max.idle.ms {self.connections_max_idle_ms}"
            )
