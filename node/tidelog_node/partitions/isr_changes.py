"""The asyncio shell of :class:`~tidelog_node.replication.isr_changes.IsrChangeQueue`: calls and log lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar, assert_never

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, TopicId
from tidelog_foundation.logs.events import EventLog
from tidelog_foundation.requests.replicas import (
    AlterPartitionItem,
    AlterPartitionItemResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    IsrMember,
)
from tidelog_node.broker.report import Report
from tidelog_node.event_loop import SystemClock
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication import isr_changes as core
from tidelog_node.replication.commands import ProposeIsr

logger = logging.getLogger(__name__)

SETTINGS = core.IsrChangeSettings()
AnyPartition = TypeVar("AnyPartition", bound=Partition)
_Event: TypeAlias = core.Event[Partition]


class IsrController(Protocol):
    """The controller's call for ISR changes."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Send the request to the leading controller; raise TidelogError when the call failed as a whole."""


class IsrChanges:
    """Sends a node's queue of ISR proposals, in the task :meth:`run`."""

    def __init__(self, controller: IsrController, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch]) -> None:
        self._core: core.IsrChangeQueue[Partition] = core.IsrChangeQueue(SETTINGS)
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = SystemClock()
        self._log = EventLog(logger)
        self._has_work = asyncio.Event()
        self._call: Mapping[Partition, ProposeIsr] | None = None

    def submit(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Queue a proposal, in place of an earlier unsent one of the same partition."""
        self._step(core.IsrProposed(partition, proposal))
        self._has_work.set()

    async def run(self) -> None:
        """Send the queued proposals until cancelled."""
        while True:
            if self._call is not None:
                call, self._call = self._call, None
                self._step(await self._send(call))
            elif self._core.next_deadline_ms is None:
                await self._has_work.wait()
            else:
                delay_ms = self._core.next_deadline_ms - self._clock.monotonic_ms()
                await asyncio.sleep(max(0, delay_ms) / 1000)
                self._step(core.TimePassed())
            self._has_work.clear()

    async def _send(self, proposals: Mapping[Partition, ProposeIsr]) -> _Event:
        request = alter_partition_request(self._broker_id, self._broker_epoch(), proposals)
        try:
            return alter_partition_answer(await self._controller.alter_partition(request), proposals)
        except TidelogError as error:
            return core.IsrCallFailed(error)

    def _step(self, event: _Event) -> None:
        for command in self._core.step(event, self._clock.monotonic_ms()):
            self._perform(command)

    def _perform(self, command: core.Command[Partition]) -> None:
        match command:
            case core.InspectPartitions():
                self._step(inspected(command.partitions))
            case core.SendProposals():
                self._call = command.proposals
            case core.SettleProposal():
                command.partition.step(command.outcome)
            case Report() if command.level == logging.INFO:
                self._log.write(command.text, *command.arguments)
            case Report():
                logger.log(command.level, command.text, *command.arguments)
            case _:
                assert_never(command)


def inspected(partitions: Iterable[AnyPartition]) -> core.PartitionsInspected[AnyPartition]:
    """Return the leader epochs of the partitions with a usable log."""
    return core.PartitionsInspected({p: p.state.leader_epoch for p in partitions if p.log.failure is None})


def alter_partition_request(
    broker_id: BrokerId, broker_epoch: BrokerEpoch, proposals: Mapping[AnyPartition, ProposeIsr]
) -> AlterPartitionRequest:
    """Return the request with these proposals."""
    topics: dict[TopicId, list[AlterPartitionItem]] = {}
    for partition, proposal in proposals.items():
        members = tuple(IsrMember(b, e) for b, e in proposal.isr)
        item = AlterPartitionItem(partition.index, proposal.leader_epoch, proposal.partition_epoch, members)
        topics.setdefault(partition.topic_id, []).append(item)
    proposed = tuple(AlterPartitionTopic(topic_id, tuple(items)) for topic_id, items in topics.items())
    return AlterPartitionRequest(broker_id, broker_epoch, proposed)


def alter_partition_answer(
    response: AlterPartitionResponse, proposals: Iterable[AnyPartition]
) -> core.IsrCallAnswered[AnyPartition]:
    """Return the controller's answers for these partitions, without those that its response omits."""
    asked = {(p.topic_id, p.index): p for p in proposals}
    answered = ((asked.get((t.topic_id, r.index)), r) for t in response.topics for r in t.partitions)
    return core.IsrCallAnswered({partition: _result(r) for partition, r in answered if partition is not None})


def _result(result: AlterPartitionItemResult) -> core.IsrStored | core.IsrRefused:
    if result.error is not None:
        return core.IsrRefused(result.error.code, result.error.message)
    return core.IsrStored(result.leader_epoch, result.partition_epoch, result.isr)
