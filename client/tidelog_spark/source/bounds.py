"""The partitions of the subscribed topics and the bounds of their logs, as the nodes tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Topic
from tidelog.cluster.client import unknown_partition
from tidelog.cluster.loop_time import now_ms
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import TopicId
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.clients import cluster_client
from tidelog_spark.source.losses import losses_outside, report_losses
from tidelog_spark.source.offsets import OffsetRange, Offsets, PartitionKey, match_timestamps, resolve_offsets
from tidelog_spark.source.options import SourceOptions
from tidelog_spark.source.positions import OffsetBound
from tidelog_spark.source.stream_offsets import Logs, StreamOffsets
from tidelog_spark.source.topic_ids import find_topic_id

T = TypeVar("T")
_MAX_TIMEOUT_MS = 60_000
"""The limit on the planner's wait for an answer, however long tasks may wait."""
FETCH_TIMEOUT_MS = 10_000
"""The timeout of a fetch from a node that is silent: a paused node must not hold up a query."""
TOPIC_CHANGED: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""Errors of a topic that may have been deleted, or of a node that does not know it yet."""


class _TopicsChangedError(Exception):
    """Topics were deleted or created again between two requests, or nodes lag behind; the look must be repeated."""

    def __init__(self, error: TidelogError) -> None:
        super().__init__(str(error))
        self.error = error


class LogBounds:
    """Looks up the logs of a query. Blocking. One planner keeps it, for it remembers deleted topics."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._selection = options.topics
        self._timeout_ms = min(options.poll_timeout_ms, _MAX_TIMEOUT_MS)
        self._client = cluster_client(options.client)
        self._deleted: set[TopicId] = set()
        self._last = Logs()

    def look(self, known: Mapping[str, TopicId] | None = None) -> Logs:
        """Return the logs. A topic may have another id than in ``known``, or be missing, only if no node has it with
        this id any more. A topic that is not in ``known`` must exist, unless data loss is allowed.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, or no node answered.
        """
        tolerate_missing = not self._options.fail_on_data_loss
        return run_sync(self._until_consistent(lambda: self._look(known or {}, tolerate_missing)))

    def resolve(self, *bounds: OffsetBound) -> list[StreamOffsets]:
        """Return the offsets for each bound, all from one look at the logs.

        Raises:
            ConfigError: a bound does not name exactly the existing partitions, or no record matches a timestamp.
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, no answer, or data loss for an offset outside the log.
        """
        return run_sync(self._until_consistent(lambda: self._resolve(bounds)))

    def search(self, ranges: Sequence[OffsetRange], timestamp_ms: int) -> Offsets:
        """Return the first offset with this timestamp or a later one for the partition of each range, or -1.

        Raises:
            TidelogError: no node answered, or a topic is deleted or created again.
        """
        ids = {planned.topic: planned.topic_id for planned in ranges}
        try:
            return run_sync(self._lookup({(planned.topic, planned.partition): timestamp_ms for planned in ranges}, ids))
        except _TopicsChangedError as changed:
            raise changed.error from changed

    async def _until_consistent(self, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline = now_ms() + self._timeout_ms
        attempts = 0
        while True:
            try:
                return await attempt()
            except _TopicsChangedError as changed:
                attempts += 1
                wait_ms = self._client.backoff.wait_ms(attempts)
                if now_ms() + wait_ms >= deadline:
                    raise changed.error from changed
            await asyncio.sleep(wait_ms / 1000)

    async def _resolve(self, bounds: tuple[OffsetBound, ...]) -> list[StreamOffsets]:
        logs = await self._look({}, tolerate_missing=False)
        return [StreamOffsets(await self._of_bound(bound, logs), logs.ids) for bound in bounds]

    async def _of_bound(self, bound: OffsetBound, logs: Logs) -> Offsets:
        positions = bound.of(logs.latest)
        if not bound.is_timestamp:
            offsets = resolve_offsets(positions, logs.earliest, logs.latest)
            report_losses(losses_outside(bound.option, offsets, logs), self._options.fail_on_data_loss)
            return {key: min(max(offset, logs.earliest[key]), logs.latest[key]) for key, offset in offsets.items()}
        found = await self._lookup(positions, logs.ids)
        return match_timestamps(bound.option, positions, found, logs.latest, bound.takes_latest)

    async def _look(self, known: Mapping[str, TopicId], tolerate_missing: bool) -> Logs:
        # Most looks find the partitions of the look before: both requests are on their way at once. The ends are those
        # of topics with these ids, so they count if the metadata names the same topics and partitions.
        expected = self._last
        ends = asyncio.ensure_future(self._ends(expected.latest, expected.ids))
        try:
            topics = await self._topics(known, tolerate_missing)
            ids = {topic.name: topic.topic_id for topic in topics}
            await self._check_deleted(known, ids)
            keys = {(topic.name, index) for topic in topics for index in self._chosen(topic, tolerate_missing)}
            is_expected = keys == expected.latest.keys() and ids == expected.ids
            self._last = await (ends if is_expected else self._ends(sorted(keys), ids))
        finally:
            await _discard(ends)
        return self._last

    async def _ends(self, keys: Iterable[PartitionKey], ids: Mapping[str, TopicId]) -> Logs:
        earliest, latest = await asyncio.gather(
            self._lookup(dict.fromkeys(keys, EARLIEST_TIMESTAMP), ids),
            self._lookup(dict.fromkeys(keys, LATEST_TIMESTAMP), ids),
        )
        # Retention may have moved the first offset between the two answers.
        return Logs(ids, {key: min(offset, latest[key]) for key, offset in earliest.items()}, latest)

    async def _topics(self, known: Mapping[str, TopicId], tolerate_missing: bool) -> list[Topic]:
        # Refresh each time: a pattern may have new topics, and a topic new partitions.
        names = None if self._selection.pattern is not None else self._selection.names
        metadata = await self._client.refresh(names, timeout_ms=self._timeout_ms)
        found: list[Topic] = []
        internal = {name: topic.is_internal for name, topic in metadata.topics.items()}
        for name in self._selection.choose_topics(internal):
            topic = metadata.topics.get(name)
            if topic is not None and topic.error is None:
                found.append(topic)
            elif name not in known:
                try:
                    found.append(await self._client.topic(name, timeout_ms=self._timeout_ms))
                except TidelogError as error:
                    if not tolerate_missing or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
        return found

    async def _check_deleted(self, known: Mapping[str, TopicId], ids: Mapping[str, TopicId]) -> None:
        """Check that no node has a topic with its known id if the metadata does not have it."""
        for name, topic_id in known.items():
            if ids.get(name) == topic_id or topic_id in self._deleted or not self._selection.has_topic(name):
                continue
            current = await find_topic_id(self._client, name, topic_id, timeout_ms=self._timeout_ms)
            if current == topic_id:
                text = f'the metadata of topic "{name}" lags behind: the topic exists under its known id'
                raise _TopicsChangedError(error_for(ErrorCode.INCONSISTENT_TOPIC_ID, text))
            self._deleted.add(topic_id)

    def _chosen(self, topic: Topic, tolerate_missing: bool) -> list[int]:
        present, missing = self._selection.choose_partitions(topic.name, topic.partitions)
        if missing and not tolerate_missing:
            raise unknown_partition(topic.name, missing[0], len(topic.partitions))
        return present

    async def _lookup(self, timestamps: Offsets, ids: Mapping[str, TopicId]) -> Offsets:
        if not timestamps:
            return {}
        try:
            found = await self._client.list_offsets(
                timestamps, timeout_ms=self._timeout_ms, read_committed=self._options.is_read_committed, topic_ids=ids
            )
        except TidelogError as error:
            if error.code in TOPIC_CHANGED:
                raise _TopicsChangedError(error) from error
            raise
        return {key: position.offset for key, position in found.items()}


async def _discard(request: asyncio.Future[Logs]) -> None:
    """Cancel a request if its answer is not needed any more."""
    request.cancel()
    await asyncio.wait([request])
    if not request.cancelled():
        request.exception()
