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
from tidelog_foundation.monitoring.loop_access import LoopAccess
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.monitoring.sources import Sources
from tidelog_foundation.security.certificate_store import CertificateStore

if TYPE_CHECKING:
    from tidelog_foundation.monitoring.port import MonitoringPort
    from tidelog_foundation.monitoring.stop_safety import DescribeStop
from tidelog_foundation.otel.export import Export

logger = logging.getLogger(__name__)


class Monitor:
    """Serves ``metrics.listeners``, and exports metrics by OTLP, from :meth:`start` to :meth:`stop`.

    Without listeners and exports it costs nothing.

    ``readiness`` and ``describe_stop`` are asked on the event loop. ``certificates`` has those of all listeners with
    TLS, by name.
    """

    def __init__(
        self,
        settings: MonitoringSettings,
        certificates: Mapping[str, CertificateStore],
        readiness: Readiness,
        describe_stop: DescribeStop,
        export: Export | None = None,
    ) -> None:
        self._settings = settings
        self._certificates = certificates
        self._readiness = readiness
        self._describe_stop = describe_stop
        self._export = export
        self._sources = Sources()
        self._port: MonitoringPort | None = None
        self._probe: asyncio.Task[None] | None = None

    @property
    def ports(self) -> Mapping[str, int]:
        """The bound ports by listener name, none before the start."""
        return {} if self._port is None else self._port.ports

    def add(self, *sources: Source) -> None:
        """Serve further metrics, also after the start."""
        self._sources.on_loop += sources

    def add_blocking(self, *sources: Source) -> None:
        """Serve further metrics that are read in a thread, because reading them may block."""
        self._sources.blocking += sources

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            ConfigError: A port is in use, or a host is not one of this machine's.
        """
        listeners, export = self._settings.monitoring_listeners, self._export
        if not listeners and export is None:
            return
        probe = EventLoopProbe()
        self._probe = asyncio.create_task(probe.run(), name="event-loop-probe")
        self.add(probe.families)
        if export is not None:
            loop = LoopAccess(asyncio.get_running_loop())
            export.start(lambda: self._sources.collect(loop))
        if not listeners:
            return
        # The libraries take a moment to import, which processes without the port save.
        await asyncio.to_thread(importlib.import_module, "tidelog_foundation.monitoring.port")
        from tidelog_foundation.monitoring.port import MonitoringPort

        has_debug = self._settings.metrics_debug_enable
        self._port = await MonitoringPort.open(
            listeners,
            self._certificates,
            self._sources,
            self._readiness,
            self._describe_stop,
            has_debug=has_debug,
        )
        bound = (replace(each, port=self.ports[each.name]) for each in listeners)
        logger.info("Metrics and health are served on %s", ", ".join(map(str, bound)))

    async def stop(self) -> None:
        """Release the ports, and export what is left."""
        if self._export is not None:
            await asyncio.to_thread(self._export.stop)
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait([self._probe])
        if self._port is not None:
            await self._port.close()
