"""The setting of a server's port for health checks."""

from __future__ import annotations

from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.config.settings import setting
from tidelog_foundation.dataclass import dataclass


# Not slotted: the settings of nodes and of controllers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class HealthSettings:
    """The port of health checks."""

    health_listener: str | None = setting(
        None,
        "A further host:port that answers gRPC health checks without TLS and authentication, and nothing else. The "
        "kubelet needs it if the gRPC listener has TLS.",
        parse_address,
    )
