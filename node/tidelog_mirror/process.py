"""The process of a mirror: its flows, its monitoring port, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tidelog_foundation.config.process import stop_signals, ungrouped
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.monitoring.checks import Check
from tidelog_foundation.monitoring.monitor import Monitor
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyResponse
from tidelog_foundation.security.certificate_store import CertificateStore, watch_certificates
from tidelog_foundation.security.metrics import certificate_families
from tidelog_mirror.cluster import MirrorCluster
from tidelog_mirror.flow_worker import FlowWorker
from tidelog_mirror.metrics import MirrorMetrics
from tidelog_mirror.settings import Flow, MirrorConfig

logger = logging.getLogger(__name__)
_CLIENT_ID: Final = "tidelog-mirror"


def selected_flows(config: MirrorConfig, targets: Collection[str]) -> tuple[Flow, ...]:
    """Return the flows to some targets, or all flows for no targets.

    Raises:
        ConfigError: A target is no cluster of the file, or no flow is enabled.
    """
    unknown = sorted(set(targets) - set(config.clusters))
    if unknown:
        raise ConfigError(f"clusters: {', '.join(unknown)} is not among {', '.join(config.clusters)}")
    if not any(flow.config.enabled for flow in config.flows):
        raise ConfigError('no flow is enabled: set "SOURCE->TARGET.enabled" to true')
    return tuple(flow for flow in config.flows if not targets or flow.target in targets)


class MirrorProcess:
    """A process with its flows, from :meth:`run` to :meth:`stop`."""

    def __init__(self, config: MirrorConfig, flows: Sequence[Flow]) -> None:
        """Create the clients.

        Raises:
            ConfigError: The certificates of a cluster's settings, or of the monitoring port, are invalid.
        """
        self._config = config
        self._clusters: list[MirrorCluster] = []
        self.workers = [FlowWorker(flow, self._client(flow.source), self._client(flow.target)) for flow in flows]
        certificates = {
            each.name: CertificateStore(each.name, config.monitoring[each.name].ssl)
            for each in config.process.monitoring_listeners
            if each.has_tls
        }
        self._certificates = tuple(certificates.values())
        self._monitor = Monitor(config.process, certificates, self._checks, _describe_stop)
        self._monitor.add(MirrorMetrics(self.workers).families, lambda: certificate_families(self._certificates))

    @property
    def monitoring_ports(self) -> Mapping[str, int]:
        """The bound ports of the monitoring port by listener name, none before the start."""
        return self._monitor.ports

    async def run(self) -> None:
        """Work until :meth:`stop`.

        Raises:
            ConfigError: The monitoring port is in use.
        """
        for warning in self._config.warnings:
            logger.warning("%s", warning)
        await self._monitor.start()
        try:
            with ungrouped():
                async with asyncio.TaskGroup() as tasks:
                    renewal = tasks.create_task(watch_certificates(self._certificates), name="certificates")
                    await asyncio.wait(
                        [tasks.create_task(each.run(), name=f"mirror-{each.flow.name}") for each in self.workers]
                    )
                    renewal.cancel()
        finally:
            await self._monitor.stop()
            for cluster in self._clusters:
                cluster.close()

    def stop(self) -> None:
        """Let :meth:`run` return after the present writes."""
        for worker in self.workers:
            worker.stop()

    def _client(self, alias: str) -> MirrorCluster:
        cluster = MirrorCluster(self._config.clusters[alias], _CLIENT_ID)
        self._clusters.append(cluster)
        return cluster

    def _checks(self) -> list[Check]:
        return [
            Check(worker.flow.name, worker.is_ready, "" if worker.is_ready else "its topics are not known yet")
            for worker in self.workers
        ]


async def run_mirror(config: MirrorConfig, flows: Sequence[Flow]) -> None:
    """Run flows of a file until SIGTERM or SIGINT.

    Raises:
        ConfigError: See :class:`MirrorProcess`.
    """
    process = MirrorProcess(config, flows)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, process.stop)
    await process.run()
    logger.info("The mirror has stopped")


async def _describe_stop() -> DescribeStopSafetyResponse:
    """A mirror can always stop: another process continues at its positions."""
    return DescribeStopSafetyResponse()
