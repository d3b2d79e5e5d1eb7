"""A controller and a node in one process, with one event loop (Kafka's combined mode).

Both are wired as in processes of their own: they share the loop, the garbage collector and the monitoring port, and
speak to each other over gRPC on loopback. The node needs the quorum to start and for its controlled shutdown, so the
controller starts first and stops last. When one of the two fails, the process ends: the failed controller's node could
go on with the others, but nobody would notice the loss of a voter.
"""

from __future__ import annotations

import asyncio

from tidelog_foundation.config.process import stop_signals
from tidelog_foundation.otel.export import Export, open_export
from tidelog_node.server.config import read_node_properties
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.process import Neighbor
from tidelog_node.server.startup import process_attributes, run_node
from tidelog_quorum.raft.storage.private_folder import private_umask
from tidelog_quorum.server.config import parse_quorum_config, select_controller_properties
from tidelog_quorum.server.process import ControllerServer, open_controller

_PORTS_OF_PROCESS = ("metrics.listeners", "health.listener")
"""The node serves them for both, and exports the metrics of both."""


async def serve_file(properties: dict[str, str]) -> None:
    """Run a controller and a node with the settings of a properties file until the process is told to stop.

    Raises:
        ConfigError: A setting is invalid, a port is in use, or a directory is unusable.
        TidelogError: The cluster refuses the node, or a disk failed.
    """
    settings = DynamicNodeConfig(read_node_properties(properties))
    selected = select_controller_properties(properties).properties
    of_controller = {key: value for key, value in selected.items() if key not in _PORTS_OF_PROCESS}
    config = parse_quorum_config(of_controller)
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # The node's files are private too: the umask is the process's.
    export = await asyncio.to_thread(open_export, "tidelog-server", process_attributes(settings.current))
    traces = None if export is None else export.traces
    with private_umask():
        await _run(open_controller(config, of_controller, traces), settings, stop, export)


async def _run(
    controller: ControllerServer, settings: DynamicNodeConfig, stop: asyncio.Event, export: Export | None
) -> None:
    controller_stop = asyncio.Event()
    await controller.start()
    try:
        quorum = asyncio.create_task(controller.run_until(controller_stop), name="controller")
        neighbor = Neighbor(controller.readiness, controller.state_families, controller.describe_stop)
        node = asyncio.create_task(run_node(settings, stop, neighbor, export), name="node")
        try:
            await asyncio.wait((quorum, node), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.set()
            await asyncio.wait((node,))
            controller_stop.set()
            await asyncio.wait((quorum,))
        # The controller's failure comes first: the node's would follow from it.
        await quorum
        await node
    finally:
        await controller.stop()
