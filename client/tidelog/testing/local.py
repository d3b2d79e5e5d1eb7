"""A whole cluster of real processes on loopback, for tests, demos and experiments."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import itertools
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from tidelog.cluster.security import ClientSecurity, SecurityConfig
from tidelog.testing.cluster_folder import FolderLocks, Ports, kept_ports, kept_properties
from tidelog.testing.ports import ClusterPorts, OnBusyPort
from tidelog.testing.process import Place, ProcessGroup, ProcessHandle
from tidelog.testing.security import ADMIN, SECURITY_FOLDER, ClusterSecurity, check_protocol
from tidelog.v1.admin_service_pb2 import DescribeClusterRequest, DescribeClusterResponse
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.log_service_pb2 import GetMetadataRequest, GetMetadataResponse, PartitionMetadata
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.config import config_key, parse_config
from tidelog_foundation.config.endpoints import (
    DEFAULT_PROTOCOL_MAP,
    GRPC,
    PLAINTEXT,
    has_sasl,
    has_tls,
    parse_protocol_map,
)
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.ssl_settings import is_listener_key
from tidelog_foundation.transport.loop import run_sync
from tidelog_foundation.waiting import ReportedBlock, ReportedWait

_POLL_INTERVAL_S = 0.02
_CALL_TIMEOUT_S = 1.0
_QUICK = {
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 2_000,
    "controller.quorum.election.timeout.ms": 500,
    "replica.lag.time.max.ms": 3_000,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.two.phase.commit.enable": True,
}
"""Shorter timeouts than Kafka's defaults (9 s) to detect a crash on one machine, and two-phase commits, which Spark's
exactly-once writes need; ``config`` overrides them."""
_INTERNAL_REPLICAS = 3
"""Kafka's default replication factor of internal topics. A smaller cluster could not create them."""
_INTERNAL_MIN_ISR = 2
INTERNAL_PARTITIONS = 5
"""The number of partitions of the internal topics where the data is not kept, as in Kafka's own tests.

Kafka's default of 50 makes the first group or transaction several times slower. Data that is kept has its number of
partitions for good, so it keeps to the default.
"""


class LocalCluster:
    """A cluster of processes on this machine, by default with three controllers and three storage nodes.

    As a context manager, it starts the processes, waits until they are ready, and ends them. No process outlives the
    one that created the cluster, even if that one is killed. ``data_dir`` keeps the data, and a later cluster with as
    many controllers can use it again; without it, the data is in a temporary folder, which is deleted.

    ``node_ports`` are the gRPC ports of the first nodes, ``kafka_ports`` their ports for Kafka's clients. All other
    ports are those that the processes had before in ``data_dir``, or free ones if there are none or another program
    uses them. With ``on_busy_port``, given ports can change as well: it is called with the name of the process, the
    given port and the port used instead.

    ``config`` contains settings by Kafka's dotted keys. Each applies to the controllers, the nodes or both, whichever
    have it; a key that neither has raises ``ConfigError``. A node's data is in its folder ``data``, and with more than
    one of ``log_dirs_per_node`` also in ``data-2``, ``data-3`` and so on. ``place("node", 2)`` and
    ``place("controller", 1)`` return the places of processes that do not run as ordinary processes of this machine.
    With ``security="ssl"``, every connection has TLS, and every process and client a certificate of an authority that
    the cluster creates in ``data_dir``; with ``"sasl_ssl"``, clients log in with a password. An authorizer permits
    everything to the user admin; :meth:`client_settings` has the settings of clients. Without ``security``, if
    ``config`` gives nodes or controllers TLS (``listener.security.protocol.map`` with ``GRPC:GRPC_SSL``, and
    ``controller.listener.names`` of ``GRPC_SSL``), ``client_config`` has the settings with which the cluster itself
    connects: ``security.protocol`` and ``ssl.*``.

    With ``metrics``, every process serves its metrics and health over HTTP at its ``metrics_address``.

    Needs ``pip install tidelog[node,quorum]``.
    """

    def __init__(
        self,
        controllers: int = 3,
        nodes: int = 3,
        data_dir: str | Path | None = None,
        config: Mapping[str, object] | None = None,
        *,
        node_ports: Sequence[int] = (),
        kafka_ports: Sequence[int] = (),
        on_busy_port: OnBusyPort | None = None,
        log_dirs_per_node: int = 1,
        place: Callable[[str, int], Place] | None = None,
        client_config: Mapping[str, object] | None = None,
        security: str | None = None,
        metrics: bool = False,
    ) -> None:
        if controllers < 1 or nodes < 0:
            raise ConfigError(f"a cluster needs at least 1 controller and 0 nodes, got {controllers} and {nodes}")
        self.cluster_id = f"local-{uuid.uuid4().hex[:12]}"
        self._has_metrics = metrics
        self._given_config: dict[str, object] = {
            **_internal_topics(nodes, is_kept=data_dir is not None),
            **(config or {}),
        }
        self._config = self._given_config
        self._keep_data = data_dir is not None
        self._data_dir = data_dir
        self._counts = (controllers, nodes)
        self._node_ports = node_ports[:nodes]
        self._kafka_ports = kafka_ports[:nodes]
        self._on_busy_port = on_busy_port
        self._place = place or (lambda *_: Place())
        self._log_dirs = ["data", *(f"data-{n}" for n in range(2, log_dirs_per_node + 1))]
        if security is not None:
            check_protocol(security)
        self._security_protocol = security
        self._security: ClusterSecurity | None = None
        self._client = parse_config(SecurityConfig, client_config or {}).client_security()
        self._group: ProcessGroup | None = None
        self._locks: FolderLocks | None = None
        self._ports = ClusterPorts({}, on_busy_port)
        self.controllers: dict[int, ProcessHandle] = {}
        self.nodes: dict[int, ProcessHandle] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for a client's ``bootstrap.servers``."""
        return ",".join(node.address for node in self.nodes.values())

    @property
    def kafka_bootstrap_servers(self) -> str:
        """The addresses of all nodes for Kafka clients, for their ``bootstrap.servers``."""
        return ",".join(node.kafka_address for node in self.nodes.values())

    @property
    def security(self) -> ClusterSecurity:
        """The certificates and users of a cluster with security. Raise RuntimeError without it or before the start."""
        if self._security is None:
            raise RuntimeError("the cluster has no security or was not started")
        return self._security

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings with which Tidelog's clients connect, with security as a user of the cluster.

        Raises:
            ConfigError: there is no such user.
        """
        own = self._security.client_settings(user) if self._security else {}
        return {"bootstrap.servers": self.bootstrap_servers, **own}

    def kafka_client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return the settings with which librdkafka's clients connect, like :meth:`client_settings`."""
        return {**self.client_settings(user), "bootstrap.servers": self.kafka_bootstrap_servers}

    @property
    def failures(self) -> list[str]:
        """The unexpected ends of processes, each with the process's last output."""
        return [handle.failure for handle in self._handles() if handle.failure is not None]

    @property
    def data_dir(self) -> Path:
        """The directory of the processes' data, configuration and output. Raise RuntimeError before the start."""
        if self._data_dir is None:
            raise RuntimeError("the cluster was not started")
        return Path(self._data_dir)

    def __enter__(self) -> LocalCluster:
        """Start all processes and wait until they are ready."""
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes. Add a note to an exception for each process that ended unexpectedly."""
        if error is not None:
            for failure in self.failures:
                error.add_note(failure)
        self.close()

    def start(self) -> None:
        """Start all processes; return before the cluster is ready.

        Raises:
            ConfigError: a key is unknown, or ``data_dir`` is in use or belongs to a cluster with other controllers.
        """
        per_module = divide_settings(self._config)
        if self._data_dir is None:
            self._data_dir = tempfile.mkdtemp(prefix="tidelog-")
        else:
            self._take_up(Path(self._data_dir))
        if self._security_protocol is not None:
            self._secure(self._security_protocol)
            per_module = divide_settings(self._config)
        self._group = ProcessGroup([self._locks.members_fd] if self._locks else [])
        self._configure(self._group, per_module)
        if self._security is not None:
            self._security.write_client_files(self.kafka_bootstrap_servers)
        for handle in self._handles():
            handle.start()

    def close(self) -> None:
        """End all processes: cleanly if the data is kept, else immediately."""
        if self._keep_data:
            self._stop_controlled()
        for handle in self._handles():
            handle.kill()
        if self._group is not None:
            self._group.close()
            self._group = None
        self._ports.release()
        if self._locks is not None:
            self._locks.release()
            self._locks = None
        if not self._keep_data and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def add_controller(self) -> ProcessHandle:
        """Start another controller, which follows the metadata log without a vote; return before it is ready."""
        if self._group is None:
            raise RuntimeError("the cluster was not started")
        controller_id = max(self.controllers) + 1
        directory = self.data_dir / f"controller-{controller_id}"
        name = ("controller", controller_id)
        place = self._ports.assign({name: self._place(*name)})[name]
        handle = ProcessHandle(controller_id, _QUORUM, place, directory, self._group)
        bootstrap = ",".join(controller.address for controller in self.controllers.values())
        handle.configure(
            {
                "node.id": controller_id,
                "cluster.id": self.cluster_id,
                "listeners": self._listeners(handle, _QUORUM),
                "controller.quorum.bootstrap.servers": bootstrap,
                "metadata.log.dir": directory / "data",
                **_known_settings(_QUORUM, self._config),
                **self._process_settings(handle),
            }
        )
        self.controllers[controller_id] = handle
        handle.start()
        return handle

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the controllers have a leader, and every running node serves and knows all the others.

        Raises:
            TimeoutError: the cluster was not ready in time; the message names the missing processes.
            RuntimeError: a process ended; the message contains its last output.
        """
        run_sync(self._wait_ready(timeout_s), timeout_s + 5)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the id of the node that leads a partition, or None if there is none."""
        return run_sync(self._leader(topic, partition), 10)

    def controller_leader(self) -> int | None:
        """Return the id of the leading controller, or None if there is none."""
        return run_sync(self._controller_leader(), 10)

    def _secure(self, protocol: str) -> None:
        self._security = ClusterSecurity(protocol, self.data_dir / SECURITY_FOLDER)
        self._config = {**self._security.common_settings(), **self._given_config}
        self._client = parse_config(SecurityConfig, self._security.client_settings()).client_security()

    def _process_settings(self, handle: ProcessHandle) -> dict[str, object]:
        settings: dict[str, object] = {}
        if self._has_metrics:
            [port] = self._ports.lease_any(1)
            handle.metrics_address = f"{handle.host}:{port}"
            settings["metrics.listeners"] = f"HTTP://{handle.metrics_address}"
        if self._security is not None:
            settings |= self._security.process_settings(handle.name.replace(" ", "-"), handle.host)
        return settings

    def _listeners(self, handle: ProcessHandle, module: str) -> str:
        if module == _QUORUM:
            name = self._security.grpc_protocol if self._security else _controller_listener(self._config)
            return f"{name}://{handle.address}"
        grpc_name = self._security.grpc_protocol if self._security else GRPC
        kafka_name = self._security.kafka_protocol if self._security else PLAINTEXT
        return f"{grpc_name}://{handle.address},{kafka_name}://{handle.kafka_address}"

    def _security_of(self, handle: ProcessHandle) -> ClientSecurity:
        """Return the security of connections to a process's gRPC listener, as far as ``config`` tells."""
        if self._security is not None:
            return self._client
        name = _controller_listener(self._config) if handle in self.controllers.values() else GRPC
        protocols = str(self._config.get("listener.security.protocol.map", DEFAULT_PROTOCOL_MAP))
        protocol = parse_protocol_map(protocols).get(name, GRPC)
        return ClientSecurity(
            self._client.credentials if has_tls(protocol) else None, self._client.login if has_sasl(protocol) else None
        )

    def _handles(self) -> list[ProcessHandle]:
        return [*self.controllers.values(), *self.nodes.values()]

    def _take_up(self, data_dir: Path) -> None:
        kept = kept_properties(data_dir, "controller")
        if kept and len(kept) != self._counts[0]:
            raise ConfigError(f"{data_dir} is of a cluster of {len(kept)} controllers, not {self._counts[0]}")
        self._locks = FolderLocks.take(data_dir)
        self._ports = ClusterPorts(kept_ports(data_dir), self._on_busy_port)
        if kept:
            self.cluster_id = kept[min(kept)]["cluster.id"]

    def _configure(self, group: ProcessGroup, per_module: Mapping[str, Mapping[str, object]]) -> None:
        controllers, nodes = self._counts
        names = [("controller", i + 1) for i in range(controllers)] + [("node", i + 1) for i in range(nodes)]
        places = self._ports.assign({name: self._place(*name) for name in names}, self._given_ports())
        voters = _voters([places[name] for name in names[:controllers]])
        if per_module[_QUORUM].get(_ENGINE) == "pysyncobj":
            engines = [Place(port=port) for port in self._ports.lease_any(controllers)]
            per_module = {**per_module, _QUORUM: {_ENGINE_VOTERS: _voters(engines), **per_module[_QUORUM]}}
        for (kind, node_id), place in places.items():
            module, target = (_QUORUM, self.controllers) if kind == "controller" else (_NODE, self.nodes)
            directory = self.data_dir / f"{kind}-{node_id}"
            handle = ProcessHandle(node_id, module, place, directory, group)
            if kind == "controller" and self._security is not None:
                self._security.format(directory / "data")
            handle.configure(
                {
                    "node.id": node_id,
                    "cluster.id": self.cluster_id,
                    "listeners": self._listeners(handle, module),
                    "controller.quorum.voters": voters,
                    _MODULES[module][1]: ",".join(
                        str(directory / name) for name in (self._log_dirs if module == _NODE else ["data"])
                    ),
                    **per_module[module],
                    **self._process_settings(handle),
                }
            )
            target[node_id] = handle

    def _given_ports(self) -> dict[tuple[str, int], Ports]:
        pairs = itertools.zip_longest(self._node_ports, self._kafka_ports, fillvalue=0)
        return {("node", number): Ports(*pair) for number, pair in enumerate(pairs, 1)}

    def _stop_controlled(self) -> None:
        for group in (self.nodes, self.controllers):
            for handle in group.values():
                handle.resume()
                handle.terminate()
            deadline = time.monotonic() + 15
            with ReportedBlock("the cluster to stop") as wait:
                for handle in group.values():
                    wait.note(f"{handle.name} has not ended")
                    handle.wait_or_kill(max(0.1, deadline - time.monotonic()))

    async def _wait_ready(self, timeout_s: float) -> None:
        with ReportedWait("the cluster to be ready") as wait:
            await self._wait_until_ready(timeout_s, wait)

    async def _wait_until_ready(self, timeout_s: float, wait: ReportedWait) -> None:
        deadline = time.monotonic() + timeout_s
        started = [handle for handle in self._handles() if handle.is_running]
        waiting = dict.fromkeys(started, "did not answer")
        running = {node_id for node_id, node in self.nodes.items() if node.is_running}
        while waiting:
            # Check even the ready ones: the answer may come from another process that took the port.
            for handle in started:
                if not handle.is_running:
                    raise RuntimeError(f"{handle.name} ended with exit code {handle.wait()}:\n{handle.log_tail()}")
            answers = await asyncio.gather(*(self._problem(handle, running) for handle in waiting))
            waiting = {handle: answer for handle, answer in zip(waiting, answers, strict=True) if answer}
            missing = "; ".join(f"{handle.name} {answer}" for handle, answer in waiting.items())
            wait.note(missing)
            if waiting and time.monotonic() > deadline:
                error = TimeoutError(f"the cluster was not ready after {timeout_s} s: {missing}")
                for handle in self._handles():
                    error.add_note(f"{handle.name} said last:\n{handle.log_tail()}")
                raise error
            await asyncio.sleep(_POLL_INTERVAL_S if waiting else 0)

    async def _problem(self, handle: ProcessHandle, running: set[int]) -> str:
        view = await _describe_cluster(handle, self._security_of(handle))
        if view is None:
            return "did not answer"
        if view.controller_id < 0:
            return "knows no leader of the quorum"
        missing = running - {broker.broker_id for broker in view.brokers if not broker.is_fenced}
        return f"does not see nodes {sorted(missing)}" if missing else ""

    async def _leader(self, topic: str, partition: int) -> int | None:
        running = [node for node in self.nodes.values() if node.is_running]
        views = await asyncio.gather(*(_describe_topic(n, topic, self._security_of(n)) for n in running))
        found: list[PartitionMetadata] = [
            p for view in views if view for t in view.topics for p in t.partitions if p.index == partition
        ]
        newest = max(found, key=lambda p: p.leader_epoch, default=None)
        return None if newest is None or newest.leader_id < 0 else newest.leader_id

    async def _controller_leader(self) -> int | None:
        running = [c for c in self.controllers.values() if c.is_running]
        views = await asyncio.gather(*(_describe_cluster(c, self._security_of(c)) for c in running))
        leading = [c.id for c, view in zip(running, views, strict=True) if view and view.controller_id == c.id]
        return leading[0] if len(leading) == 1 else None


_ENGINE, _ENGINE_VOTERS = "controller.quorum.engine", "controller.quorum.pysyncobj.voters"
_QUORUM, _NODE = "tidelog_quorum", "tidelog_node"
_MODULES = {_QUORUM: ("QuorumConfig", "metadata.log.dir"), _NODE: ("NodeConfig", "log.dirs")}


def divide_settings(config: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    """Return the settings of ``config`` by package. Raise ConfigError for a key that neither package knows."""
    per_module = {module: _known_settings(module, config) for module in _MODULES}
    of_listeners = {key: value for key, value in config.items() if is_listener_key(key)}
    per_module[_NODE] |= of_listeners
    prefix = f"listener.name.{_controller_listener(config).lower()}."
    per_module[_QUORUM] |= {key: value for key, value in of_listeners.items() if key.startswith(prefix)}
    unknown = set(config) - {key for settings in per_module.values() for key in settings}
    if unknown:
        raise ConfigError(f"neither controllers nor nodes know the configuration {', '.join(sorted(unknown))}")
    return per_module


def _internal_topics(nodes: int, *, is_kept: bool) -> dict[str, object]:
    """Return the numbers of replicas of internal topics that so many nodes can have, and those of partitions."""
    replicas = max(1, min(_INTERNAL_REPLICAS, nodes))
    partitions = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    return {
        **({} if is_kept else dict.fromkeys(partitions, INTERNAL_PARTITIONS)),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(_INTERNAL_MIN_ISR, replicas),
    }


def _controller_listener(config: Mapping[str, object]) -> str:
    """Return the name of the controllers' listener."""
    return str(config.get("controller.listener.names", GRPC)).upper()


def _voters(places: Sequence[Place]) -> str:
    return ",".join(f"{index + 1}@{place.host}:{place.port}" for index, place in enumerate(places))


def _known_settings(module: str, config: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a component knows. The module is imported by name, as its process is started by name."""
    config_class: Any = getattr(importlib.import_module(f"{module}.server.config"), _MODULES[module][0])
    known = {config_key(field) for field in dataclasses.fields(config_class)}
    return {key: value for key, value in {**_QUICK, **config}.items() if key in known}


async def _describe_cluster(handle: ProcessHandle, security: ClientSecurity) -> DescribeClusterResponse | None:
    async with security.open_channel(handle.address) as channel:
        with contextlib.suppress(grpc.RpcError):
            return await AdminServiceStub(channel).DescribeCluster(DescribeClusterRequest(), timeout=_CALL_TIMEOUT_S)
    return None


async def _describe_topic(handle: ProcessHandle, topic: str, security: ClientSecurity) -> GetMetadataResponse | None:
    async with security.open_channel(handle.address) as channel:
        with contextlib.suppress(grpc.RpcError):
            return await LogServiceStub(channel).GetMetadata(
                GetMetadataRequest(topics=[topic]), timeout=_CALL_TIMEOUT_S
            )
    return None
