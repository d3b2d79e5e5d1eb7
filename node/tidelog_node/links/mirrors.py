"""The mirror partitions of one link that this node leads, and the fetches from one broker of the source."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import NO_EPOCH, BrokerId
from tidelog_node.event_loop import Clock
from tidelog_node.fetching import FetchRequest, FetchResult
from tidelog_node.handlers.link_sources import SourceLeader
from tidelog_node.kafka.client.source_cluster import SourceCluster
from tidelog_node.partitions import Partition
from tidelog_node.partitions.fetchers.leader_fetcher import REDIRECTED, FetcherSettings
from tidelog_node.partitions.mirror_writes import (
    append_from_source,
    is_mirrored,
    restart_at_source,
    truncate_to_source,
)
from tidelog_node.replication.fetch_session import FetchSpec, PartitionKey
from tidelog_node.replication.mirroring import MirrorTerm, Step, whole_batches

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 50
_EARLIEST = -2
_MOVED: Final = REDIRECTED | {ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR}
"""Errors of a fetch after which the source may have another leader."""


@dataclass(slots=True, eq=False)
class Mirror:
    """A mirror partition in one leader epoch of this node, with what is known of its source."""

    partition: Partition
    term: MirrorTerm
    source: SourceLeader | None = None
    source_high_watermark: int = -1
    error: TidelogError | None = None
    """Why the last fetch failed; None after a success."""
    pause_until_ms: int = 0
    pause_ms: int = 0
    is_drained: bool = False
    """True once the high watermark has reached the end that the source had during a promotion."""

    @property
    def is_current(self) -> bool:
        """True while this node leads the mirror in the same leader epoch."""
        return is_mirrored(self.partition, self.term.leader_epoch)

    @property
    def lag(self) -> int:
        """The records that the source has and the mirror has not committed, as far as known."""
        return max(0, self.source_high_watermark - self.partition.high_watermark)

    def learn_source(self, source: SourceLeader | None) -> None:
        """Process the source's leader."""
        if source is not None and source.broker_id < 0:
            source = None
        before = self.term.source_epoch
        self.term.learn_source(None if source is None else source.leader_epoch)
        if source is None or before is None or source.leader_epoch >= before:
            self.source = source

    def note_failure(self, error: TidelogError) -> None:
        """Keep the error of a failed fetch, and log the first of several."""
        if self.error is None or self.error.code is not error.code:
            logger.warning("Mirroring %s failed, retrying: %s", self.partition, error)
        self.error = error.detached()

    def fail(self, error: TidelogError, now_ms: int, most_ms: int) -> None:
        """Pause after a failure, longer after each of several."""
        self.note_failure(error)
        self.pause_ms = min(max(_FIRST_PAUSE_MS, 2 * self.pause_ms), most_ms)
        self.pause_until_ms = now_ms + self.pause_ms

    def succeed(self) -> None:
        """Forget earlier failures."""
        self.error, self.pause_ms = None, 0


@dataclass(slots=True)
class FetchCounts:
    """The bytes of records and the failed fetches of a link on this node, since its last start."""

    records_bytes: int = 0
    failures: int = 0


@dataclass(slots=True)
class SourceFetcher:
    """Fetches the mirrors whose source leader is one broker, in one request at a time.

    At most one response is in memory. ``on_moved`` is called when the source may have another leader, or the partition
    needs another leader epoch.
    """

    broker_id: BrokerId
    source: SourceCluster
    address: Callable[[BrokerId], str | None]
    mirrors: Callable[[], Iterable[Mirror]]
    settings: FetcherSettings
    clock: Clock
    counts: FetchCounts
    on_moved: Callable[[], None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the mirrors have changed."""
    _turn: int = 0

    async def run(self) -> None:
        """Fetch until cancelled."""
        failures = 0
        while True:
            self.changed.clear()
            wanted = list(self._wanted())
            if not wanted:
                await self._wait()
                continue
            try:
                await self._poll(wanted)
                failures = 0
            except TidelogError as error:
                failures += 1
                self.counts.failures += 1
                for mirror in wanted:
                    mirror.note_failure(error)
                self.on_moved()
                pause_ms = min(_FIRST_PAUSE_MS << min(failures, 10), self.settings.max_backoff_ms)
                await asyncio.sleep(pause_ms / 1000)

    def _wanted(self) -> Iterator[Mirror]:
        now_ms = self.clock.monotonic_ms()
        for mirror in self.mirrors():
            source = mirror.source
            is_here = source is not None and source.broker_id == self.broker_id
            if (
                is_here
                and mirror.term.next_step is Step.FETCH
                and mirror.is_current
                and mirror.pause_until_ms <= now_ms
            ):
                yield mirror

    async def _wait(self) -> None:
        now_ms = self.clock.monotonic_ms()
        paused = [m.pause_until_ms - now_ms for m in self.mirrors() if m.pause_until_ms > now_ms]
        try:
            async with asyncio.timeout(max(1, min(paused)) / 1000 if paused else None):
                await self.changed.wait()
        except TimeoutError:
            return

    async def _poll(self, wanted: list[Mirror]) -> None:
        address = self.address(self.broker_id)
        if address is None:
            text = f"the source does not name the address of its broker {self.broker_id}"
            raise TidelogError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        self._turn += 1
        first = self._turn % len(wanted)
        # The source fills its response in this order.
        asked = {self._key(m): (m, m.partition.log.log_end_offset) for m in (*wanted[first:], *wanted[:first])}
        settings = self.settings
        request = FetchRequest(
            {key: self._spec(mirror, offset) for key, (mirror, offset) in asked.items()},
            settings.response_max_bytes,
            settings.max_wait_ms,
            max(1, settings.min_bytes),
        )
        timeout_s = (settings.max_wait_ms + settings.timeout_ms) / 1000
        response = await self.source.fetch(address, request, timeout_s)
        # A mirror that was paused meanwhile stands still, and takes no answer any more.
        current = set(self.mirrors())
        for key, result in response.results.items():
            if key in asked and asked[key][0] in current:
                await self._take(address, *asked[key], result)

    async def _take(self, address: str, mirror: Mirror, offset: int, result: FetchResult) -> None:
        try:
            if result.error is not None:
                await self._take_error(address, mirror, offset, result.error)
            elif result.diverging is not None:
                if await truncate_to_source(mirror.partition, mirror.term.leader_epoch, offset, result.diverging):
                    mirror.term.note_truncated()
                    self.on_moved()
            else:
                records = whole_batches(result.records)
                append_from_source(mirror.partition, mirror.term.leader_epoch, offset, records, result.log_start_offset)
                self.counts.records_bytes += len(records)
                mirror.source_high_watermark = result.high_watermark
                mirror.succeed()
                if records:
                    await asyncio.sleep(0)
        except TidelogError as error:
            self._fail(mirror, error)
        except Exception as error:
            # One bad partition never stops a fetcher.
            logger.exception("Mirroring %s failed with an unexpected error", mirror.partition)
            self._fail(mirror, TidelogError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    def _fail(self, mirror: Mirror, error: TidelogError) -> None:
        self.counts.failures += 1
        mirror.fail(error, self.clock.monotonic_ms(), self.settings.max_backoff_ms)

    async def _take_error(self, address: str, mirror: Mirror, offset: int, error: TidelogError) -> None:
        partition, source = mirror.partition, mirror.source
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and source is not None:
            key = partition.topic, partition.index
            starts = await self.source.list_offsets(address, {key: source.leader_epoch}, _EARLIEST)
            if key in starts and await restart_at_source(partition, mirror.term.leader_epoch, offset, starts[key]):
                return
        elif error.code in _MOVED:
            self.on_moved()
        raise error

    def _key(self, mirror: Mirror) -> PartitionKey:
        return mirror.partition.topic_id, mirror.partition.index

    def _spec(self, mirror: Mirror, offset: int) -> FetchSpec:
        last_epoch = mirror.partition.log.latest_epoch
        return FetchSpec(
            mirror.partition.topic_id,
            offset,
            self.settings.partition_max_bytes,
            mirror.term.source_epoch,
            None if last_epoch == NO_EPOCH else last_epoch,
            -1,
        )
