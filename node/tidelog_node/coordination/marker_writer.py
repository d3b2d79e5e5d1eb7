"""Writes the markers of transactions to the leaders of their partitions, until each partition has them.

:class:`~tidelog_node.transactions.markers.MarkerQueue` decides. The writer sends its requests concurrently, one per
node, and continues after each response, after each back-off, and when the metadata changes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination.marker_sender import MarkerSender
from tidelog_node.coordination.shard_kind import ShardTerm
from tidelog_node.event_loop import Clock
from tidelog_node.transactions.events import MarkersWritten, TransactionNews, WriteMarkers
from tidelog_node.transactions.markers import NO_LEADER, MarkerQueue, MarkersRequest
from tidelog_node.transactions.states import TopicPartition
from tidelog_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class ImageSource(Protocol):
    """The metadata of the cluster."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        ...

    async def next_image(self, known: MetadataImage) -> MetadataImage:
        """Return the newest image once it is not ``known``."""
        ...


class MarkerWriter:
    """Writes the markers of a node's coordinators, in the task :meth:`run` and after :meth:`connect`."""

    def __init__(self, metadata: ImageSource, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._queue = MarkerQueue()
        self._terms: dict[int, ShardTerm[TransactionNews]] = {}
        """The term of each shard that has added markers."""
        self._sender: MarkerSender | None = None
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of transactions whose markers are not in all partitions."""
        return len(self._queue)

    def connect(self, sender: MarkerSender) -> None:
        """Begin to send."""
        self._sender = sender
        self._woken.set()

    def add(self, term: ShardTerm[TransactionNews], markers: WriteMarkers) -> None:
        """Write the markers of a transaction. MarkersWritten follows."""
        self._terms[term.index] = term
        self._queue.add(term.index, term.leader_epoch, markers)
        self._woken.set()

    def end(self, term: ShardTerm[TransactionNews]) -> None:
        """Drop the markers of a term."""
        if self._terms.get(term.index) is term:
            del self._terms[term.index]
            self._queue.end_shard(term.index)

    async def run(self) -> None:
        """Write markers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_leaders(), name="marker-leaders")
            while True:
                self._woken.clear()
                if self._sender is not None:
                    steps = self._queue.requests_in_steps(self._leader_of, self._clock.monotonic_ms())
                    for request in await TimeSlices().result_of(steps):
                        task = self._send(self._sender, request)
                        tasks.create_task(task, name=f"markers-to-{request.node_id}")
                for shard, markers in self._queue.take_written():
                    self._terms[shard].post(MarkersWritten(markers.transactional_id, markers.producer))
                await self._wait()

    async def _send(self, sender: MarkerSender, request: MarkersRequest) -> None:
        try:
            errors = await sender.send(request)
        except TidelogError as error:
            logger.warning("Markers of transactions could not be written to node %d: %s", request.node_id, error)
            self._queue.fail(request.request_id, self._clock.monotonic_ms())
        except Exception:
            logger.exception("Markers of transactions to node %d failed with an unexpected error", request.node_id)
            self._queue.fail(request.request_id, self._clock.monotonic_ms())
        else:
            self._queue.answer(request.request_id, errors, self._clock.monotonic_ms())
        self._woken.set()

    async def _wait(self) -> None:
        """Wait for something to do."""
        retry_ms = self._queue.next_retry_ms()
        delay_s = None if retry_ms is None else max(0, retry_ms - self._clock.monotonic_ms()) / 1000
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _follow_leaders(self) -> None:
        image = self._metadata.image
        while True:
            image = await self._metadata.next_image(image)
            if len(self._queue):
                self._woken.set()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """Return the leader, NO_LEADER if there is none now, or None if the partition was deleted."""
        image = self._metadata.image
        registration = image.partition(*partition)
        if registration is None:
            return None
        broker = image.brokers.get(registration.leader)
        return NO_LEADER if broker is None or broker.fenced else registration.leader
