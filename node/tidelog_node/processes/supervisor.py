"""The process that runs the nodes of ``tidelog-node --processes N``, and serves nothing itself.

It starts them together, restarts each one that ends, and stops all when it is told to stop. The nodes stop when their
standard input ends, so they do not outlive it, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tidelog_foundation.config.process import UNTIL_EOF, stop_signals
from tidelog_foundation.errors import ConfigError
from tidelog_node.processes.plan import NodePlan, plan_nodes
from tidelog_node.processes.restarts import Restarts

logger = logging.getLogger(__name__)


async def supervise(properties: Mapping[str, str], count: int, arguments: Sequence[str]) -> None:
    """Run ``count`` nodes until the process is told to stop. ``arguments`` are the file and the overrides of all.

    Raises:
        ConfigError: The settings do not fit several nodes, or a node refuses them.
    """
    plans = plan_nodes(properties, count, socket.gethostname())
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    nodes = [_Supervised(plan, arguments, stop) for plan in plans]
    logger.info("Nodes %d to %d run in %d processes", plans[0].node_id, plans[-1].node_id, count)
    await asyncio.gather(*(node.run() for node in nodes))
    refused = [str(node.plan.node_id) for node in nodes if node.is_refused]
    if refused:
        raise ConfigError(f"all nodes of this machine are stopped, because of node {', '.join(refused)}: see above")


class _Supervised:
    """A node's process, which is started again when it ends, until ``stop`` is set."""

    def __init__(self, plan: NodePlan, arguments: Sequence[str], stop: asyncio.Event) -> None:
        self.plan = plan
        self.is_refused = False
        """Whether the node cannot run with its settings."""
        self._command = [sys.executable, "-m", "tidelog_node", *arguments, UNTIL_EOF]
        for key, value in plan.overrides.items():
            self._command += ["--override", f"{key}={value}"]
        self._stop = stop
        self._restarts = Restarts()

    async def run(self) -> None:
        """Keep the process running until ``stop`` is set, which a refusal of the settings does too."""
        while not self._stop.is_set():
            started_s = time.monotonic()
            code = await self._live()
            if self._stop.is_set():
                return
            pause_s = self._restarts.pause_s(code, time.monotonic() - started_s)
            if pause_s is None:
                self.is_refused = True
                self._stop.set()
                return
            logger.error("Node %d has ended with exit code %d; it starts in %g s", self.plan.node_id, code, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)

    async def _live(self) -> int:
        """Run the process to its end, and return its exit code. ``stop`` ends it in order."""
        process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        return await ended
