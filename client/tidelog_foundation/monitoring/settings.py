"""The settings of a process's monitoring port, the same for nodes and controllers."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.config.endpoints import NamedListener, parse_monitoring_listeners
from tidelog_foundation.config.settings import setting
from tidelog_foundation.dataclass import dataclass

_DEBUG: Final = "/debug/tasks and /debug/profile?seconds="


# Not slotted: the settings of nodes and of controllers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class MonitoringSettings:
    """The monitoring port."""

    metrics_listeners: str | None = setting(
        None,
        "The addresses that serve metrics to Prometheus (/metrics) and health (/livez, /readyz, /healthz): "
        "HTTP://host:port, or HTTPS://host:port with the ssl. settings, which listener.name.https. overrides. Without "
        "TLS and ssl.client.auth=required, everybody who reaches the port may read them. Not set, nothing is served.",
        parse_monitoring_listeners,
        config_type="LIST",
    )
    metrics_debug_enable: bool = setting(
        False, f"Whether metrics.listeners also serve {_DEBUG}: the positions of the process in its source code."
    )

    @property
    def monitoring_listeners(self) -> tuple[NamedListener, ...]:
        """The addresses of the monitoring port. Port 0 lets the system choose."""
        return parse_monitoring_listeners(self.metrics_listeners) if self.metrics_listeners else ()
