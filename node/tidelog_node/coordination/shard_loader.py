"""Loads a shard: brings the shard's view to the end of its log.

The view contains only committed records, so a new leader must not add others to it. It waits until its high watermark
reaches the end that its log had at the election. Kafka's loader reads to the log's end at once and keeps uncommitted
records apart. Here clients receive COORDINATOR_LOAD_IN_PROGRESS during the wait, some milliseconds in most elections,
while followers fetch from the new leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog_node.coordination.log_tail import apply_batches, epoch_before, offset_to_resume
from tidelog_node.coordination.shard_contents import ShardContents
from tidelog_node.coordination.view_layout import ShardName, ViewPosition
from tidelog_node.coordination.views import ShardStore, ShardViews, View
from tidelog_node.event_loop import Clock
from tidelog_node.partitions import Partition

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_MANY_RECORDS = 10_000
_LONG_MS = 1_000


class LeadershipEndedError(Exception):
    """This node no longer leads the shard in the same term."""


class ShardLoader:
    """Loads one shard, while ``is_leading()`` is true of its partition."""

    def __init__(
        self,
        partition: Partition,
        is_leading: Callable[[], bool],
        woken: asyncio.Event,
        views: ShardViews,
        clock: Clock,
    ) -> None:
        """``woken`` is set when the high watermark has moved and when the leadership ends."""
        self._partition = partition
        self._is_leading = is_leading
        self._woken = woken
        self._views = views
        self._clock = clock

    async def load(self, view: View) -> ShardContents:
        """Return the shard's records, complete up to the end of the log.

        Raises:
            LeadershipEndedError: Another node has become the leader.
            ViewFailedError: RocksDB failed.
            TidelogError: The log cannot be read.
        """
        started_ms = self._clock.monotonic_ms()
        end_offset = self._partition.log.log_end_offset
        await self._wait_for_high_watermark(end_offset)
        shard = view.shard(ShardName(self._partition.index, self._partition.topic_id))
        begun = offset = await self._begin(shard, end_offset)
        position = ViewPosition(begun, epoch_before(self._partition.log, begun), 0)
        contents = await self._views.in_thread(ShardContents, shard, position)
        while offset < end_offset:
            batches = self._partition.log.read(offset, _READ_BYTES, end_offset)
            if not batches:
                break
            now_ms = self._clock.wall_ms()
            offset = await self._views.in_thread(apply_batches, contents, batches, now_ms)
            self._check_leading()
        end = ViewPosition(end_offset, epoch_before(self._partition.log, end_offset), self._clock.wall_ms())
        await self._views.in_thread(contents.apply, (), end)
        if end_offset - begun >= _MANY_RECORDS:
            # Without a flush, a crash would cause all of them to be read again.
            await self._views.in_thread(view.begin_flush)
        self._check_leading()
        self._note_end(begun, end_offset, started_ms)
        return contents

    async def _wait_for_high_watermark(self, end_offset: int) -> None:
        while self._partition.high_watermark < end_offset:
            self._woken.clear()
            self._check_leading()
            await self._woken.wait()
        self._check_leading()

    async def _begin(self, shard: ShardStore, end_offset: int) -> int:
        log = self._partition.log
        position = await self._views.in_thread(shard.position)
        self._check_leading()
        offset = offset_to_resume(log, position, end_offset, self._clock.wall_ms())
        if offset is not None:
            return offset
        if position is not None:
            logger.warning("%s: its view at %s does not fit the log and is recreated", self._partition, position)
        await self._views.in_thread(shard.clear)
        self._check_leading()
        return log.log_start_offset

    def _check_leading(self) -> None:
        if not self._is_leading():
            raise LeadershipEndedError

    def _note_end(self, begun: int, end_offset: int, started_ms: int) -> None:
        took_ms = self._clock.monotonic_ms() - started_ms
        level = logging.INFO if took_ms >= _LONG_MS else logging.DEBUG
        text = "%s: the shard is loaded, from offset %d to %d in %d ms"
        logger.log(level, text, self._partition, begun, end_offset, took_ms)
