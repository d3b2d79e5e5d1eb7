"""The start of a node in a process, which claims the ports and log directories first."""

from __future__ import annotations

import asyncio

import grpc.aio

from tidelog_foundation.allocator import keep_freed_memory
from tidelog_foundation.config.process import stop_signals
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.otel.export import Export, open_export
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.intake import MAX_CALLS
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.partitions import LogManager
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.grpc_connections import grpc_server_options
from tidelog_node.server.process import BoundServer, Neighbor, Node
from tidelog_node.server.process_resources import raise_open_files_limit
from tidelog_node.server.tls import grpc_credentials, listener_certificates, listener_tls

_MOST_FREE_BYTES = 16 * 1024 * 1024
"""The maximum free memory at the end of a heap."""


async def serve(properties: dict[str, str]) -> None:
    """Run a node with these settings until it is told to stop.

    Raises:
        ConfigError: A setting is invalid, a port is in use, or a log directory is unusable.
        TidelogError: The cluster refuses the node, or the disk failed.
    """
    settings = DynamicNodeConfig(properties)
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    export = await asyncio.to_thread(open_export, "tidelog-node", process_attributes(settings.current))
    await run_node(settings, stop, export=export)


def process_attributes(config: NodeConfig) -> dict[str, str]:
    """Return the attributes of the node's process, as OpenTelemetry's resource."""
    return {"service.instance.id": str(config.node_id), "tidelog.cluster.id": config.cluster_id}


async def run_node(
    settings: DynamicNodeConfig, stop: asyncio.Event, neighbor: Neighbor | None = None, export: Export | None = None
) -> None:
    """Run a node until ``stop`` is set, which claims its ports and directories first.

    Raises:
        ConfigError: A port is in use, or a log directory is unusable.
        TidelogError: The cluster refuses the node, or the disk failed.
    """
    config = settings.current
    raise_open_files_limit()
    certificates = listener_certificates(settings)
    servers: dict[str, BoundServer] = {}
    for listener in config.grpc_listeners:
        options = grpc_server_options(settings, listener)
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        credentials = grpc_credentials(certificates.get(listener.name))
        servers[listener.name] = BoundServer(server, bind_port(server, listener.host, listener.port, credentials))
        for shared in config.shared_listeners:
            if shared.name == listener.name:
                bind_port(server, shared.host, shared.port, credentials, is_shared=True)
    with KafkaListeners.bind(
        config.kafka_listeners,
        settings.listener_limits,
        config.inter_broker_listener.name,
        {x.name: listener_tls(certificates[x.name], has_sasl=x.has_sasl) for x in config.kafka_listeners if x.has_tls},
        [x for x in config.shared_listeners if not x.speaks_grpc],
    ) as kafka:
        directories = LogManager.open(
            config.log_dirs,
            config.cluster_id,
            BrokerId(config.node_id),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        try:
            keep_freed_memory(_MOST_FREE_BYTES)
            node = Node(
                settings, servers, kafka, directories, certificates=certificates, neighbor=neighbor, export=export
            )
            await node.run(stop)
        finally:
            directories.close(clean=False)
