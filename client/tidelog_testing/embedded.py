"""One controller and one node on the network loop, with logs in memory.

They are the servers' own parts without their processes. A stop breaks the clients' connections and then shuts both
down cleanly, so that nothing outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import grpc.aio

from tidelog_foundation.config import parse_config
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.transport import server_options
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.intake import MAX_CALLS
from tidelog_node.handlers import NodeContext
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.partitions import LogManager
from tidelog_node.replication import FetchSession
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.process import BoundServer, Node
from tidelog_node.server.tls import grpc_credentials, listener_certificates, listener_tls
from tidelog_quorum.raft.core.voters import Voter
from tidelog_quorum.raft.network.links import MAX_FRAME_BYTES
from tidelog_quorum.server.authorization import controller_guards
from tidelog_quorum.server.config import QuorumConfig
from tidelog_quorum.server.process import ControllerServer
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_testing.faults import Gate
from tidelog_testing.interception import FaultInterceptor
from tidelog_testing.memory_files import MemoryFiles
from tidelog_testing.memory_view import open_memory_view
from tidelog_testing.sole_voter import MemoryLog, SoleVoter

HOST: Final = "127.0.0.1"
NODE_ID: Final = BrokerId(1)
_CONTROLLER_ID: Final = 1
_LISTENER: Final = "PLAINTEXT"
_LOG_DIR: Final = "/memory"
_LOOK_S: Final = 0.001


class Storage:
    """State that outlives a restart: the disk, the metadata log, and the ports."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.log = MemoryLog()
        self.grpc_port = 0
        self.kafka_port = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings by dotted keys of the controller and the node, which share one process."""

    controller: Mapping[str, str]
    node: Mapping[str, str]


class EmbeddedCluster:
    """A controller and a node that start once. Call all methods on the network loop."""

    def __init__(self, storage: Storage, gate: Gate, settings: Settings) -> None:
        self._storage = storage
        self._gate = gate
        self._settings = settings
        self._stop = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._kafka: KafkaListeners | None = None
        self._node: Node | None = None
        self._controller: ControllerServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start both and wait until the node serves.

        Raises:
            ConfigError: a port is in use.
        """
        self._task = asyncio.create_task(self._run(), name="embedded-cluster")
        while not self._is_ready():
            if self._task.done():
                self._task.result()
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """Break every connection, then stop the node and the controller."""
        if self._server is not None and self._kafka is not None:
            await asyncio.gather(self._server.stop(None), self._kafka.stop(0))
        self._stop.set()
        if self._task is not None:
            await self._task
        self._storage.files.release_locks()

    @property
    def context(self) -> NodeContext:
        """The state that the node's handlers use."""
        assert self._node is not None
        assert self._node.context is not None
        return self._node.context

    @property
    def quorum(self) -> QuorumController:
        """The controller."""
        assert self._controller is not None
        return self._controller.quorum

    def _is_ready(self) -> bool:
        if self._node is None or self._node.context is None:
            return False
        broker = self.context.metadata.image.brokers.get(NODE_ID)
        return broker is not None and not broker.fenced

    async def _run(self) -> None:
        server = grpc.aio.server(options=server_options(MAX_FRAME_BYTES), maximum_concurrent_rpcs=MAX_CALLS)
        port = bind_port(server, HOST, 0)
        address = f"{HOST}:{port}"
        config = parse_config(QuorumConfig, {**self._settings.controller, **_controller_settings(address)})
        engine = SoleVoter(Voter.at(_CONTROLLER_ID, HOST, port), self._storage.log)
        servers = {config.first_listener.name: server}
        self._controller = ControllerServer(config, servers, engine, guards=controller_guards(config))
        await self._controller.start()
        try:
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._controller.run_until(stop), name="embedded-controller")
                try:
                    await self._run_node(address)
                finally:
                    stop.set()
        finally:
            await self._controller.stop()

    async def _run_node(self, controller: str) -> None:
        storage = self._storage
        settings = DynamicNodeConfig({**self._settings.node, **_node_settings(controller, storage)})
        config = settings.current
        interceptors = [FaultInterceptor(self._gate, self._sessions)]
        self._server = grpc.aio.server(
            options=server_options(), maximum_concurrent_rpcs=MAX_CALLS, interceptors=interceptors
        )
        certificates = listener_certificates(settings)
        credentials = grpc_credentials(certificates.get(config.grpc_listener.name))
        storage.grpc_port = bind_port(self._server, HOST, storage.grpc_port, credentials)
        servers = {config.grpc_listener.name: BoundServer(self._server, storage.grpc_port)}
        tls = {
            x.name: listener_tls(certificates[x.name], has_sasl=x.has_sasl) for x in config.kafka_listeners if x.has_tls
        }
        with KafkaListeners.bind(config.kafka_listeners, settings.listener_limits, _LISTENER, tls) as self._kafka:
            storage.kafka_port = self._kafka.ports[_LISTENER]
            directories = LogManager.open(config.log_dirs, config.cluster_id, NODE_ID, storage.files)
            with _closing(directories):
                self._node = Node(settings, servers, self._kafka, directories, open_memory_view, certificates)
                await self._node.run(self._stop)

    def _sessions(self) -> Iterator[FetchSession]:
        return iter(self.context.fetch_sessions.cache)


@contextlib.contextmanager
def _closing(directories: LogManager) -> Iterator[None]:
    try:
        yield
    finally:
        directories.close(clean=False)


def _controller_settings(address: str) -> dict[str, str]:
    return {
        "node.id": str(_CONTROLLER_ID),
        "listeners": f"GRPC://{address}",
        "controller.quorum.voters": f"{_CONTROLLER_ID}@{address}",
        "metadata.log.dir": _LOG_DIR,
    }


def _node_settings(controller: str, storage: Storage) -> dict[str, str]:
    return {
        "node.id": str(NODE_ID),
        "listeners": f"GRPC://{HOST}:{storage.grpc_port},{_LISTENER}://{HOST}:{storage.kafka_port}",
        "controller.quorum.voters": f"{_CONTROLLER_ID}@{controller}",
        "log.dirs": _LOG_DIR,
    }
