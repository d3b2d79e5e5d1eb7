"""All cluster links of this node. A link is restarted when its settings change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.ids import BrokerEpoch, LinkId, TopicId
from tidelog_foundation.link_settings import LinkConfig, parse_link_settings
from tidelog_foundation.requests.links import ClusterLink
from tidelog_node.kafka.client.source_cluster import SourceCluster
from tidelog_node.links.group_offsets import GroupOffsets
from tidelog_node.links.link_worker import LinkWorker
from tidelog_node.links.mirrors import Mirror
from tidelog_node.links.node import LinkNode
from tidelog_node.links.topic_settings import TopicSettings
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings

logger = logging.getLogger(__name__)
_RESTART_S: Final = 5.0


class ClusterLinks:
    """The node's links, one task each while :meth:`run` runs."""

    def __init__(self, node: LinkNode, broker_epoch: Callable[[], BrokerEpoch], settings: FetcherSettings) -> None:
        self._node = node
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._running: dict[LinkId, tuple[ClusterLink, asyncio.Task[None]]] = {}
        self._workers: dict[LinkId, LinkWorker] = {}

    @property
    def workers(self) -> Iterable[LinkWorker]:
        """The links in progress."""
        return list(self._workers.values())

    def mirror(self, topic_id: bytes, index: int) -> Mirror | None:
        """Return a mirror partition that this node leads, or None."""
        found = (worker.mirrors.get((TopicId(topic_id), index)) for worker in self._workers.values())
        return next((mirror for mirror in found if mirror is not None), None)

    def open_source(self, config: LinkConfig) -> SourceCluster:
        """Return the source of a link with these settings.

        Raises:
            ConfigError: The certificates or keys of the settings are invalid.
        """
        return SourceCluster(config, f"node-{self._node.broker_id}-link")

    async def run(self) -> None:
        """Run the links of the newest image until cancelled."""
        image = self._node.metadata.image
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._follow(tasks, {link.link_id: link for link in image.cluster_links.values()})
                image = await self._node.metadata.next_image(image)

    def _follow(self, tasks: asyncio.TaskGroup, links: dict[LinkId, ClusterLink]) -> None:
        for link_id, (link, task) in list(self._running.items()):
            if links.get(link_id) != link:
                task.cancel()
                del self._running[link_id]
                self._workers.pop(link_id, None)
        for link_id, link in links.items():
            if link_id not in self._running:
                self._running[link_id] = link, tasks.create_task(self._run(link), name=f"link-{link.name}")

    async def _run(self, link: ClusterLink) -> None:
        """Run one link, again after an unexpected error."""
        while True:
            try:
                config = parse_link_settings(link.values)
                worker = LinkWorker(
                    link, config, self.open_source(config), self._node, self._broker_epoch, self._settings
                )
                self._workers[link.link_id] = worker
                async with asyncio.TaskGroup() as tasks:
                    if config.consumer_offset_sync_enable:
                        tasks.create_task(GroupOffsets(worker, self._node).run(), name=f"link-{link.name}-groups")
                    settings = TopicSettings(worker, self._node, self._broker_epoch)
                    tasks.create_task(settings.run(), name=f"link-{link.name}-settings")
                    await worker.run()
            except (ConfigError, TidelogError) as error:
                logger.error("The link %s does not run: %s", link.name, error)
            except Exception:
                logger.exception("The link %s failed with an unexpected error", link.name)
            await asyncio.sleep(_RESTART_S)
