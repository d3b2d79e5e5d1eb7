"""The ISR proposals of a simulated node, many in one call and one call at a time, as ``IsrChanges`` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog.v1 import controller_service_pb2 as pb
from tidelog_node.replication.commands import ProposeIsr
from tidelog_node.replication.events import IsrChangeAccepted, IsrChangeRefused

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

_FIRST_BACKOFF_MS = 20
_MAX_BACKOFF_MS = 150


class IsrChanges:
    """Of one life of a node; at most one proposal per partition waits."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._waiting: dict[SimulatedPartition, ProposeIsr] = {}
        self._is_sending = False

    def submit(self, partition: SimulatedPartition, proposal: ProposeIsr) -> None:
        """Queue a proposal, in place of an earlier one that has not been sent."""
        self._waiting[partition] = proposal
        if not self._is_sending:
            self._is_sending = True
            self._node.soon(self._send, _FIRST_BACKOFF_MS)

    def _send(self, backoff_ms: int) -> None:
        waiting, self._waiting = self._waiting, {}
        batch = {p: r for p, r in waiting.items() if p.state.leader_epoch == r.leader_epoch and p.log.failure is None}
        if not batch:
            self._is_sending = False
            return
        self._node.calls.ask(
            "handle_alter_partition",
            self._request(batch),
            lambda r: self._take(r, batch, backoff_ms),
            250,
            repeats=False,
        )

    def _request(self, batch: dict[SimulatedPartition, ProposeIsr]) -> pb.AlterPartitionRequest:
        topics: dict[TopicId, pb.AlterPartitionTopic] = {}
        for partition, proposal in batch.items():
            topic = topics.setdefault(partition.topic_id, pb.AlterPartitionTopic(topic_id=partition.topic_id))
            topic.partitions.add(
                index=partition.index,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                new_isr=[pb.IsrMember(broker_id=b, broker_epoch=e) for b, e in proposal.isr],
            )
        node = self._node
        return pb.AlterPartitionRequest(broker_id=node.number, broker_epoch=node.broker_epoch, topics=topics.values())

    def _take(self, response: Any, batch: dict[SimulatedPartition, ProposeIsr], backoff_ms: int) -> None:
        refused: dict[SimulatedPartition, IsrChangeRefused] = {}
        if isinstance(response, TidelogError):
            refused = {p: IsrChangeRefused(r.proposal_id, response.code) for p, r in batch.items()}
        else:
            results = {(t.topic_id, r.index): r for t in response.topics for r in t.partitions}
            for partition, proposal in batch.items():
                result = results.get((partition.topic_id, partition.index))
                if result is None or result.HasField("error"):
                    code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else ErrorCode.of(result.error.code)
                    refused[partition] = IsrChangeRefused(proposal.proposal_id, code)
                    continue
                isr = frozenset(BrokerId(b) for b in result.isr)
                epochs = LeaderEpoch(result.leader_epoch), PartitionEpoch(result.partition_epoch)
                partition.step(IsrChangeAccepted(proposal.proposal_id, *epochs, isr))
        following_ms = min(2 * backoff_ms, _MAX_BACKOFF_MS) if refused else _FIRST_BACKOFF_MS
        self._node.after(backoff_ms if refused else 0, self._refuse, refused, following_ms)

    def _refuse(self, refused: dict[SimulatedPartition, IsrChangeRefused], backoff_ms: int) -> None:
        for partition, refusal in refused.items():
            if self._node.partitions.get(partition.key) is partition:
                partition.step(refusal)
        self._send(backoff_ms)
