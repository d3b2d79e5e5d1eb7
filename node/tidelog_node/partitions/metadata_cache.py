"""The newest metadata image of this node, and those who wait for something to appear in it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tidelog.ids import NO_BROKER, BrokerId
from tidelog_quorum.metadata import MetadataImage


class MetadataCache:
    """Written by the metadata follower after the partitions have taken a change over; read by the handlers."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._brokers = self.image.brokers
        self.controller_id: BrokerId = NO_BROKER
        self._changed = asyncio.Event()

    def publish(self, image: MetadataImage) -> None:
        """Replace the image and wake those who wait."""
        self.image = image
        self._brokers = image.brokers
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def publish_brokers(self, image: MetadataImage) -> None:
        """Make the nodes' addresses known ahead of the rest: followers need them to take the image over."""
        self._brokers = image.brokers

    def broker_address(self, broker_id: BrokerId) -> str | None:
        """Return ``host:port`` of a node, None when it is not registered."""
        broker = self._brokers.get(broker_id)
        return None if broker is None else str(broker.endpoint)

    async def next_image(self, seen: MetadataImage) -> MetadataImage:
        """Return the newest image as soon as it is another one than ``seen``; those between are passed over."""
        while self.image is seen:
            await self._changed.wait()
        return self.image

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Wait until the image fulfils a condition; returns whether it did in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition(self.image):
                    await self._changed.wait()
        return condition(self.image)
