"""Copies committed offsets of groups from the source of a link, for its mirror topics.

The coordinator of a group here asks the coordinator on the source. It commits an offset only when it has changed, and
only while the group has no members here: such a commit is refused. Offsets that an open transaction may change are left
for the next time.

No copied offset is above the mirror's high watermark: a group that has read further on the source gets the high
watermark, and more as the mirror grows. After a failover it therefore continues at the first record that the source's
copy did not have, and not at an offset that does not exist.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.links import MirrorState
from tidelog_node.groups.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from tidelog_node.handlers.group_calls import answer_of_group
from tidelog_node.links.link_worker import LinkWorker
from tidelog_node.links.mirror_ends import Committed, MirrorEnds, limited
from tidelog_node.links.node import LinkNode
from tidelog_node.shards.events import ClientIdentity

logger = logging.getLogger(__name__)

_NO_MEMBER: Final = -1
_MOST_GROUPS: Final = 10_000
"""The largest number of groups whose copied offsets a node remembers, to skip those that have not changed."""
_COPIED: Final = (MirrorState.ACTIVE, MirrorState.PAUSED, MirrorState.PENDING_STOPPED)


class GroupOffsets:
    """The task of one link that copies offsets every ``consumer.offset.sync.ms``."""

    def __init__(self, worker: LinkWorker, node: LinkNode) -> None:
        self._worker = worker
        self._node = node
        self._copied: dict[str, Committed] = {}
        self._has_failed = False

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            try:
                await self._copy_all()
                self._has_failed = False
            except TidelogError as error:
                if not self._has_failed:
                    text = "Offsets of groups could not be copied over link %s, retrying: %s"
                    logger.warning(text, self._worker.link.name, error)
                self._has_failed = True
            await asyncio.sleep(self._worker.config.consumer_offset_sync_ms / 1000)

    async def _copy_all(self) -> None:
        partitions = self._mirrored()
        if not partitions:
            return
        source, ends = self._worker.source, MirrorEnds(self._node, partitions)
        for address in (await source.metadata(())).brokers.values():
            for group_id in await source.groups(address):
                if self._worker.config.copies_group(group_id) and self._coordinates(group_id):
                    found = await source.committed(address, group_id, partitions)
                    await self._commit(group_id, limited(found, await ends.read()))

    def _mirrored(self) -> dict[str, list[int]]:
        """Return the partitions of the link's mirror topics."""
        image, link_id = self._node.metadata.image, self._worker.link.link_id
        topics = (
            image.topic_by_id(topic_id)
            for topic_id, mirror in image.mirror_topics.items()
            if mirror.link_id == link_id and mirror.state in _COPIED
        )
        return {topic.name: sorted(topic.partitions) for topic in topics if topic is not None}

    def _coordinates(self, group_id: str) -> bool:
        try:
            return self._node.groups.leader_of(group_id)[0] == self._node.broker_id
        except TidelogError:
            # The internal topic may be new, or have no leader now.
            return False

    async def _commit(self, group_id: str, found: Committed) -> None:
        known = self._copied.get(group_id, {})
        changed = {key: value for key, value in found.items() if known.get(key) != value}
        if not changed:
            return
        topics: dict[str, list[OffsetCommitPartition]] = {}
        for (topic, index), (offset, epoch, metadata) in changed.items():
            partition = OffsetCommitPartition(index, offset, None if epoch < 0 else epoch, metadata)
            topics.setdefault(topic, []).append(partition)
        request = OffsetCommitRequest(
            group_id, _NO_MEMBER, topics=tuple(OffsetCommitTopic(name, tuple(each)) for name, each in topics.items())
        )
        client = ClientIdentity(f"link-{self._worker.link.name}", "/" + "127.0.0.1")
        response = await answer_of_group(self._node.groups, request, client, OffsetCommitResponse)
        errors = {(t.name, p.index): p.error for t in response.topics for p in t.partitions}
        for error in errors.values():
            if error is not None and error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                raise error
        committed = {key: value for key, value in changed.items() if errors.get(key) is None}
        if len(self._copied) < _MOST_GROUPS or group_id in self._copied:
            self._copied[group_id] = {**known, **committed}
