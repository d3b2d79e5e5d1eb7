"""Sends the ISR proposals of all partitions to the controller, many in one call and one call at a time (KIP-497).

A call whose outcome is unknown is reported to each of its partitions as such: their state machines keep the
proposal pending and ask again with the same compare-and-set, which the controller applies once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Protocol

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog.v1 import controller_service_pb2 as pb
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication.commands import ProposeIsr
from tidelog_node.replication.events import IsrChangeAccepted, IsrChangeRefused

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 1.0
_MAX_PER_REQUEST = 1_000
"""Of a node that leads many partitions: the controller handles one request at a time, and bounds what it writes."""

_Batch = dict[Partition, ProposeIsr]


class IsrController(Protocol):
    """The controller as far as ISR changes go."""

    async def alter_partition(self, request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse:
        """Send the request to the leading controller; raises TidelogError when the call failed whole."""
        ...


class IsrChanges:
    """The queue of proposals and the task that empties it; at most one proposal per partition waits."""

    def __init__(self, controller: IsrController, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._waiting: _Batch = {}
        self._has_work = asyncio.Event()

    def submit(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Queue a proposal, in place of an earlier one of the same partition that has not been sent."""
        self._waiting[partition] = proposal
        self._has_work.set()

    async def run(self) -> None:
        """Send what is queued until cancelled."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            batch = dict(itertools.islice(self._waiting.items(), _MAX_PER_REQUEST))
            for partition in batch:
                del self._waiting[partition]
            if self._waiting:
                self._has_work.set()
            if await self._send(batch, backoff_s):
                backoff_s = _FIRST_BACKOFF_S
            else:
                backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    async def _send(self, batch: _Batch, backoff_s: float) -> bool:
        """Feed the answer of every proposal back; returns False after a pause when the call failed."""
        batch = {p: r for p, r in batch.items() if p.state.leader_epoch == r.leader_epoch and p.log.failure is None}
        if not batch:
            return True
        try:
            response = await self._controller.alter_partition(self._request(batch))
        except TidelogError as error:
            logger.warning("Changing the ISR of %d partitions failed, trying again: %s", len(batch), error)
            await asyncio.sleep(backoff_s)
            for partition, proposal in batch.items():
                partition.step(IsrChangeRefused(proposal.proposal_id, error.code))
            return False
        return await self._take(response, batch, backoff_s)

    def _request(self, batch: _Batch) -> pb.AlterPartitionRequest:
        topics: dict[TopicId, pb.AlterPartitionTopic] = {}
        for partition, proposal in batch.items():
            topic = topics.setdefault(partition.topic_id, pb.AlterPartitionTopic(topic_id=partition.topic_id))
            members = [pb.IsrMember(broker_id=b, broker_epoch=e) for b, e in proposal.isr]
            topic.partitions.append(
                pb.AlterPartitionItem(
                    index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr=members,
                )
            )
        return pb.AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=topics.values()
        )

    async def _take(self, response: pb.AlterPartitionResponse, batch: _Batch, backoff_s: float) -> bool:
        results = {(t.topic_id, r.index): r for t in response.topics for r in t.partitions}
        refused: dict[Partition, IsrChangeRefused] = {}
        for partition, proposal in batch.items():
            result = results.get((partition.topic_id, partition.index))
            if result is not None and result.error.code == ErrorCode.NEW_LEADER_ELECTED.code:
                # Done, and there is nothing to try again: this node leads no more, as the metadata will say.
                logger.info("The ISR of %s is changed: %s", partition, result.error.message)
                partition.step(IsrChangeRefused(proposal.proposal_id, ErrorCode.NEW_LEADER_ELECTED))
                continue
            if result is None or result.HasField("error"):
                refused[partition] = _refusal(partition, proposal, result)
                continue
            logger.info("The ISR of %s is now %s", partition, list(result.isr))
            partition.step(
                IsrChangeAccepted(
                    proposal.proposal_id,
                    LeaderEpoch(result.leader_epoch),
                    PartitionEpoch(result.partition_epoch),
                    frozenset(BrokerId(b) for b in result.isr),
                )
            )
        if refused:
            await asyncio.sleep(backoff_s)
        for partition, refusal in refused.items():
            partition.step(refusal)
        return not refused


def _refusal(
    partition: Partition, proposal: ProposeIsr, result: pb.AlterPartitionItemResult | None
) -> IsrChangeRefused:
    code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else ErrorCode.of(result.error.code)
    text = "the answer leaves it out" if result is None else result.error.message
    logger.info("The controller refused the ISR %s of %s: %s", [b for b, _ in proposal.isr], partition, text)
    return IsrChangeRefused(proposal.proposal_id, code)
