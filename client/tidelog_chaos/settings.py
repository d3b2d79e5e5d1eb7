"""The settings of a run, and its driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidelog_chaos.drivers.driver import FaultDriver
from tidelog_chaos.faults.plan import name_of
from tidelog_chaos.workload import WorkloadSettings, check_clients, load_library
from tidelog_foundation.config.settings import HIDDEN
from tidelog_foundation.errors import ConfigError

DRIVERS = ("local", "netns", "kubernetes", "none")
WORKLOADS = ("queue", "subscribe", "transactions", "spark")
_SECRET = re.compile(r"password|secret|jaas|key\.pem$|keystore\.key$")
"""The keys of settings of clients and servers whose values are secret."""
OWN_CLUSTER = ("local", "netns")
"""Drivers that start a cluster of their own."""
_GROUP_SERVERS = {
    "offsets.topic.num.partitions": 5,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
"""The settings of a run's own cluster for workloads with a group: crashed members are detected sooner."""
_TRANSACTION_SERVERS = {
    "transaction.state.log.num.partitions": 5,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}
"""The settings of a run's own cluster for workloads with transactions: abandoned ones end sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The location of the pods, and an image with the tools that the servers' own image lacks."""

    namespace: str = "default"
    selector: str = "app.kubernetes.io/name=tidelog"
    context: str = ""
    image: str = "nicolaka/netshoot"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run. ``servers`` are settings of the cluster's processes, with their dotted names."""

    output: Path
    driver: str = "local"
    workload: str = "queue"
    faults: tuple[str, ...] = ()
    duration_s: float = 300
    interval_s: tuple[float, float] = (5, 15)
    seed: int = 0
    controllers: int = 3
    nodes: int = 3
    bootstrap_servers: str = ""
    client: str = "tidelog"
    """The client library: see :func:`~tidelog_chaos.workload.load_library`."""
    kafka_bootstrap_servers: str = ""
    """The addresses at which a Kafka client finds an existing cluster."""
    queue: WorkloadSettings = field(default_factory=WorkloadSettings)
    servers: Mapping[str, str] = field(default_factory=dict)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    disk_mib: int = 512
    keep_data: bool = False
    secure: bool = False
    """Whether the connections of a run's own cluster are encrypted and authenticated."""

    @property
    def fault_names(self) -> tuple[str, ...]:
        """The faults without their kinds, each once."""
        return tuple(dict.fromkeys(name_of(fault) for fault in self.faults))

    @property
    def data_dir(self) -> Path:
        """The directory of the data of a run's own cluster."""
        return self.output / "cluster"

    def as_json(self) -> dict[str, Any]:
        """Return all settings for ``run.json``, without passwords and keys."""
        shown: dict[str, Any] = {**asdict(self), "output": str(self.output), "servers": _without_secrets(self.servers)}
        for client in ("producer", "consumer"):
            shown["queue"][client] = _without_secrets(shown["queue"][client])
        return shown


def make_driver(settings: RunSettings) -> FaultDriver:
    """Return the driver of a run, not started.

    Raises:
        ConfigError: The settings are inconsistent, or the driver cannot inject one of the faults here.
    """
    _check(settings)
    driver = _driver(settings)
    refused = driver.refusals(settings.fault_names)
    if refused:
        reasons = "; ".join(f"{fault}: {reason}" for fault, reason in refused.items())
        raise ConfigError(f"the driver {settings.driver} cannot do this here: {reasons}")
    return driver


def _driver(settings: RunSettings) -> FaultDriver:
    # Each driver is imported on demand: they need different parts of Tidelog.
    own = (settings.data_dir, settings.controllers, settings.nodes, _servers(settings), settings.fault_names)
    security = "sasl_ssl" if settings.secure else None
    match settings.driver:
        case "local":
            from tidelog_chaos.drivers.local import LocalDriver

            return LocalDriver(*own, disk_mib=settings.disk_mib, security=security)
        case "netns":
            from tidelog_chaos.drivers.netns import NetnsDriver

            return NetnsDriver(*own, disk_mib=settings.disk_mib, security=security)
        case "kubernetes":
            from tidelog_chaos.drivers.kubernetes import KubernetesDriver

            return KubernetesDriver(
                settings.bootstrap_servers, settings.kubernetes, settings.duration_s, settings.kafka_bootstrap_servers
            )
        case _:
            return FaultDriver(settings.bootstrap_servers, settings.kafka_bootstrap_servers)


def _without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: HIDDEN if _SECRET.search(key) else value for key, value in settings.items()}


def _servers(settings: RunSettings) -> Mapping[str, object]:
    """Return the settings of the servers of a run's own cluster."""
    if settings.workload == "queue":
        return settings.servers
    of_transactions = _TRANSACTION_SERVERS if settings.workload in ("transactions", "spark") else {}
    # Commits are as safe as records: two replicas have them.
    return {**_GROUP_SERVERS, **of_transactions, "min.insync.replicas": min(2, settings.nodes), **settings.servers}


def _check(settings: RunSettings) -> None:
    if settings.driver not in DRIVERS:
        raise ConfigError(f'"{settings.driver}" is not a driver; there are {", ".join(DRIVERS)}')
    if settings.workload not in WORKLOADS:
        raise ConfigError(f'"{settings.workload}" is not a workload; there are {", ".join(WORKLOADS)}')
    if settings.driver in OWN_CLUSTER:
        if settings.bootstrap_servers:
            raise ConfigError(f"the driver {settings.driver} starts a cluster of its own: no --bootstrap-servers")
        if settings.queue.replication_factor > settings.nodes:
            factor, nodes = settings.queue.replication_factor, settings.nodes
            raise ConfigError(f"a replication factor of {factor} needs as many nodes, not {nodes}")
    else:
        if not settings.bootstrap_servers:
            raise ConfigError(f"the driver {settings.driver} needs --bootstrap-servers of the cluster")
        if settings.servers:
            raise ConfigError(f"the driver {settings.driver} cannot change the settings of the servers")
        if settings.secure:
            raise ConfigError(f"the driver {settings.driver} starts no cluster that could be secured: no --secure")
    if settings.workload == "spark" and "credentials" in settings.fault_names:
        raise ConfigError("the workload spark cannot tell its query of a new password: no fault credentials")
    library = load_library(settings.client)
    _check_kafka_servers(settings, is_kafkas=library.is_kafkas)
    check_clients(settings.queue, library, settings.workload)


def _check_kafka_servers(settings: RunSettings, *, is_kafkas: bool) -> None:
    option = "--kafka-bootstrap-servers"
    is_wanted = is_kafkas and settings.driver not in OWN_CLUSTER
    if is_wanted and not settings.kafka_bootstrap_servers:
        who = f"the client {settings.client}, with the driver {settings.driver},"
        raise ConfigError(f"{who} needs {option}: the addresses of the nodes' Kafka listeners")
    if settings.kafka_bootstrap_servers and not is_wanted:
        why = f"the driver {settings.driver} knows them" if is_kafkas else f"the client {settings.client} speaks gRPC"
        raise ConfigError(f"{why}: no {option}")
