"""The newest metadata image of this node, and waiting for a change in it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from tidelog_foundation.config.endpoints import GRPC
from tidelog_foundation.ids import NO_BROKER, BrokerEpoch, BrokerId, TopicId
from tidelog_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class MetadataCache:
    """The node's newest metadata image.

    The metadata follower publishes an image after the partitions have applied it; the handlers read it.
    ``inter_broker_listener`` is the name of the listener through which nodes fetch from each other.
    """

    def __init__(self, inter_broker_listener: str = GRPC) -> None:
        self.image = MetadataImage()
        self._inter_broker_listener = inter_broker_listener
        self._unreachable: dict[BrokerId, BrokerEpoch] = {}
        self._brokers = self.image.brokers
        self._addresses: dict[BrokerId, str] = {}
        """The addresses of the nodes in ``_brokers`` that were looked up, since every fetch needs one."""
        self._names_ahead = self.image.topic_names
        self.controller_id: BrokerId = NO_BROKER
        self._changed = asyncio.Event()

    def publish(self, image: MetadataImage) -> None:
        """Replace the image and wake all waiters."""
        self.image = image
        self.publish_brokers(image)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def publish_brokers(self, image: MetadataImage) -> None:
        """Publish the addresses of nodes and the names of topics ahead of the rest of the image.

        The partitions' fetchers need the addresses to apply the image. Followers on other nodes fetch by topic id as
        soon as they have applied it, perhaps before this node has.
        """
        self._brokers = image.brokers
        self._addresses = {}
        self._names_ahead = image.topic_names

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id, or None; its replicas may not exist on this node yet."""
        known = TopicId(topic_id)
        return self.image.topic_names.get(known) or self._names_ahead.get(known)

    def broker_address(self, broker_id: BrokerId) -> str | None:
        """Return ``host:port`` of a node's inter-broker listener; None when it is not registered or has none."""
        address = self._addresses.get(broker_id)
        if address is not None:
            return address
        broker = self._brokers.get(broker_id)
        if broker is None:
            return None
        endpoint = broker.endpoint_on(self._inter_broker_listener)
        if endpoint is not None:
            address = self._addresses[broker_id] = str(endpoint)
            return address
        if self._unreachable.get(broker_id) != broker.broker_epoch:
            # Log once per registration of the other node, because every fetch calls this method.
            self._unreachable[broker_id] = broker.broker_epoch
            logger.error(
                "Node %d has no listener %s (this node's inter.broker.listener.name), only %s",
                broker_id,
                self._inter_broker_listener,
                ", ".join(map(str, broker.listeners)) or broker.endpoint,
            )
        return None

    async def next_image(self, seen: MetadataImage) -> MetadataImage:
        """Return the newest image as soon as it differs from ``seen``; the caller may miss images in between."""
        while self.image is seen:
            await self._changed.wait()
        return self.image

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Wait until the image meets a condition, and return whether it did so in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition(self.image):
                    await self._changed.wait()
        return condition(self.image)
