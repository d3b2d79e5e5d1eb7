"""The open call of a node at the leading controller, which lets the controller detect at once that the process is gone.

It follows the heartbeats: each answered one ensures that there is a call at the controller that answered. Nothing is
retried here, and a controller of a version without the call costs one refusal per heartbeat.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.brokers import HoldConnectionRequest
from tidelog_node.server.controller_client import ControllerClient

logger = logging.getLogger(__name__)


class LivenessConnection:
    """One per node. ``run`` is its task, which makes the most recently requested call."""

    def __init__(self, broker_id: BrokerId, controller: ControllerClient) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._wanted: tuple[str, BrokerEpoch] | None = None
        self._held: tuple[str, BrokerEpoch] | None = None
        self._asked = asyncio.Event()

    def hold(self, broker_epoch: BrokerEpoch) -> None:
        """Request an open call, for this registration, at the controller that is called first now."""
        self._wanted = self._controller.address, broker_epoch
        if self._wanted != self._held:
            self._asked.set()

    async def run(self) -> None:
        """Make the calls until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            call: asyncio.Task[None] | None = None
            while True:
                await self._asked.wait()
                self._asked.clear()
                if call is not None:
                    call.cancel()
                if self._wanted is not None:
                    self._held = self._wanted
                    call = tasks.create_task(self._call(self._wanted), name="liveness-connection")

    async def _call(self, place: tuple[str, BrokerEpoch]) -> None:
        address, broker_epoch = place
        request = HoldConnectionRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        try:
            await self._controller.hold_connection(address, request)
        except TidelogError as error:
            logger.debug("The liveness connection to %s ended: %s", address, error)
        finally:
            if self._held == place:
                self._held = None
