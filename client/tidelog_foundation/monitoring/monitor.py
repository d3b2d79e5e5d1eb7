"""The monitoring of a process: the sources of its metrics, and the port that serves them."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog_foundation.metrics import Source
from tidelog_foundation.monitoring.checks import Readiness
from tidelog_foundation.monitoring.event_loop import EventLoopProbe
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.security.certificate_store import CertificateStore

if TYPE_CHECKING:
    from tidelog_foundation.monitoring.port import MonitoringPort
    from tidelog_foundation.monitoring.stop_safety import DescribeStop

logger = logging.getLogger(__name__)


class Monitor:
    """Serves ``metrics.listeners`` from :meth:`start` to :meth:`stop`. Without listeners it costs nothing.

    ``readiness`` and ``describe_stop`` are asked on the event loop. ``certificates`` has those of all listeners with
    TLS, by name.
    """

    def __init__(
        self,
        settings: MonitoringSettings,
        certificates: Mapping[str, CertificateStore],
        readiness: Readiness,
        describe_stop: DescribeStop,
    ) -> None:
        self._settings = settings
        self._certificates = certificates
        self._readiness = readiness
        self._describe_stop = describe_stop
        self._on_loop: list[Source] = []
        self._blocking: list[Source] = []
        self._port: MonitoringPort | None = None
        self._probe: asyncio.Task[None] | None = None

    @property
    def ports(self) -> Mapping[str, int]:
        """The bound ports by listener name, none before the start."""
        return {} if self._port is None else self._port.ports

    def add(self, *sources: Source) -> None:
        """Serve further metrics, also after the start."""
        self._on_loop += sources

    def add_blocking(self, *sources: Source) -> None:
        """Serve further metrics that are read in a thread, because reading them may block."""
        self._blocking += sources

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            ConfigError: A port is in use, or a host is not one of this machine's.
        """
        listeners = self._settings.monitoring_listeners
        if not listeners:
            return
        # The libraries take a moment to import, which processes without the port save.
        await asyncio.to_thread(importlib.import_module, "tidelog_foundation.monitoring.port")
        from tidelog_foundation.monitoring.application import Sources
        from tidelog_foundation.monitoring.port import MonitoringPort

        probe = EventLoopProbe()
        self._probe = asyncio.create_task(probe.run(), name="event-loop-probe")
        self.add(probe.families)
        has_debug = self._settings.metrics_debug_enable
        self._port = await MonitoringPort.open(
            listeners,
            self._certificates,
            Sources(self._on_loop, self._blocking),
            self._readiness,
            self._describe_stop,
            has_debug=has_debug,
        )
        bound = (replace(each, port=self.ports[each.name]) for each in listeners)
        logger.info("Metrics and health are served on %s", ", ".join(map(str, bound)))

    async def stop(self) -> None:
        """Release the ports."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait([self._probe])
        if self._port is not None:
            await self._port.close()
