"""The high watermarks of mirror partitions, and the committed offsets of groups limited to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import NO_EPOCH, BrokerId
from tidelog_node.handlers.offsets import LATEST
from tidelog_node.handlers.requests.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog_node.links.node import LinkNode

logger = logging.getLogger(__name__)

Place = tuple[str, int]
"""A topic and the index of a partition."""
Committed = Mapping[Place, tuple[int, int, str]]
"""Offsets of a group with their leader epochs and metadata."""
_TIMEOUT_S: Final = 10.0


def limited(found: Committed, ends: Mapping[Place, int]) -> dict[Place, tuple[int, int, str]]:
    """Return the offsets, none above the end of its partition. A partition whose end is unknown is left out.

    A lowered offset has no leader epoch: the source's may be above that of the mirror, whose metadata would then be
    outdated for clients for as long as the source is gone (KIP-320).
    """
    kept = {}
    for place, (offset, epoch, metadata) in found.items():
        end = ends.get(place)
        if end is not None:
            kept[place] = (offset, epoch, metadata) if offset <= end else (end, NO_EPOCH, metadata)
    return kept


class MirrorEnds:
    """The high watermarks of mirror partitions, which their leaders are asked for once, at the first use."""

    def __init__(self, node: LinkNode, partitions: Mapping[str, Sequence[int]]) -> None:
        self._node = node
        self._partitions = partitions
        self._ends: dict[Place, int] | None = None

    async def read(self) -> Mapping[Place, int]:
        """Return the high watermarks, without those whose leader does not answer."""
        if self._ends is None:
            self._ends = await self._read()
        return self._ends

    async def _read(self) -> dict[Place, int]:
        ends: dict[Place, int] = {}
        elsewhere: dict[BrokerId, dict[str, list[int]]] = {}
        topics = self._node.metadata.image.topics
        for name, indexes in self._partitions.items():
            for index in indexes:
                topic = topics.get(name)
                registered = None if topic is None else topic.partitions.get(index)
                if registered is None:
                    continue
                if registered.leader == self._node.broker_id:
                    self._read_own(name, index, ends)
                else:
                    elsewhere.setdefault(registered.leader, {}).setdefault(name, []).append(index)
        for broker_id, partitions in elsewhere.items():
            await self._ask(broker_id, partitions, ends)
        return ends

    def _read_own(self, topic: str, index: int, ends: dict[Place, int]) -> None:
        partition = self._node.partitions.get(topic, index)
        if partition is not None:
            try:
                ends[topic, index] = partition.state.require_leader().latest_offset()
            except TidelogError as error:
                logger.debug("%s has no end now: %s", partition, error)

    async def _ask(self, broker_id: BrokerId, partitions: Mapping[str, Sequence[int]], ends: dict[Place, int]) -> None:
        address = self._node.metadata.broker_address(broker_id)
        if address is None:
            return
        request = ListOffsetsRequest(
            tuple(
                ListOffsetsTopic(name, tuple(ListOffsetsPartition(index, LATEST) for index in indexes))
                for name, indexes in partitions.items()
            )
        )
        try:
            response = await self._node.calls.list_offsets(address, request, _TIMEOUT_S)
        except TidelogError as error:
            logger.debug("Node %d does not return the ends of its mirrors: %s", broker_id, error)
            return
        for topic in response.topics:
            ends.update({(topic.name, p.index): p.offset for p in topic.partitions if p.error is None})
