"""The producer ids of this node, taken from blocks that the controllers allocate and prefetched in time.

Each id is used once. A block whose answer is lost, or that is unfinished at a stop, is never used (KIP-730). The same
is true of blocks in an earlier range than the next id of the cluster: a cluster link has moved the ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse

logger = logging.getLogger(__name__)

_PREFETCH_AT = 0.9
"""The used share of a block at which the next one is requested (Kafka's PID_PREFETCH_THRESHOLD)."""
_RANGE_BITS = 40
"""A cluster link moves the ids to another range of 2^40."""
_CALL_TIMEOUT_S = 4.0
_RETRY_S = 0.25
_WAIT_S = 3.0


class BlockSource(Protocol):
    """The source of blocks: the leading controller."""

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, timeout_s: float
    ) -> AllocateProducerIdsResponse:
        """Return a unique block.

        Raises:
            TidelogError: No controller could allocate a block.
        """


class ProducerIdManager:
    """Assigns a node's producer ids; the task :meth:`run` requests the blocks."""

    def __init__(
        self,
        source: BlockSource,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        wait_s: float = _WAIT_S,
    ) -> None:
        self._source = source
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._wait_s = wait_s
        self._present = range(0)
        self._used = 0
        self._next: range | None = None
        self._least = 0
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()

    def follow(self, next_producer_id: int) -> None:
        """Drop the blocks of earlier ranges than the next id of the cluster's metadata."""
        self._least = next_producer_id >> _RANGE_BITS << _RANGE_BITS
        if self._present.start < self._least:
            self._present, self._used = range(0), 0
        if self._next is not None and self._next.start < self._least:
            self._next = None

    async def next_id(self) -> int:
        """Return an id that no producer of the cluster has.

        Raises:
            TidelogError: COORDINATOR_LOAD_IN_PROGRESS: the controllers allocated no block in time. A retry may succeed.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._has_one():
                    self._arrived.clear()
                    self._wanted.set()
                    await self._arrived.wait()
        except TimeoutError:
            text = f"node {self._broker_id} got no producer ids from the controllers within {self._wait_s} s"
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text) from None
        producer_id = self._present[self._used]
        self._used += 1
        if self._next is None and self._used >= len(self._present) * _PREFETCH_AT:
            self._wanted.set()
        return producer_id

    async def run(self) -> None:
        """Request blocks on demand until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                block = await self._allocate()
            except TidelogError as error:
                logger.warning("The controllers allocated no producer ids, retrying: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            if block.start < self._least:
                continue
            self._next = block
            self._wanted.clear()
            self._arrived.set()

    async def _allocate(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        response = await self._source.allocate_producer_ids(request, _CALL_TIMEOUT_S)
        if response.producer_id_len <= 0:
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"an empty block of producer ids: {response}")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    def _has_one(self) -> bool:
        if self._used == len(self._present) and self._next is not None:
            self._present, self._used, self._next = self._next, 0, None
        return self._used < len(self._present)
