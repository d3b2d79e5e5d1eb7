"""The ConsumerGroupHeartbeat of a member (KIP-848): complete on joining or in doubt, otherwise only changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.consumer.membership.reconciliation import TopicIdPartition, member_topics
from tidelog.consumer.membership.settings import MembershipSettings
from tidelog.v1 import group_service_pb2 as pb

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


@dataclass(frozen=True, slots=True)
class Said:
    """The state that a heartbeat reports. ``owned`` is None if the next heartbeat must repeat it."""

    topics: frozenset[str]
    pattern: str
    owned: frozenset[TopicIdPartition] | None


class HeartbeatState:
    """The state last reported to the coordinator (Kafka's ``HeartbeatState``)."""

    def __init__(self, settings: MembershipSettings, member_id: str) -> None:
        self._settings = settings
        self._member_id = member_id
        self._said: Said | None = None

    def is_news(self, said: Said) -> bool:
        """Return True if this state was not reported yet."""
        return said != self._said

    def reset(self) -> None:
        """Report everything next time, because the coordinator may not know it."""
        self._said = None

    def forget_owned(self) -> None:
        """Report the owned partitions next time even if they did not change."""
        if self._said is not None:
            self._said = replace(self._said, owned=None)

    def request(self, epoch: int, said: Said) -> pb.ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat and record its state as reported."""
        before, self._said = self._said, said
        request = self._bare(epoch)
        if before is None:
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            if self._settings.client_rack:
                request.rack_id = self._settings.client_rack
            if self._settings.remote_assignor:
                request.server_assignor = self._settings.remote_assignor
        if before is None or before.topics != said.topics:
            request.subscribed_topic_names.CopyFrom(pb.SubscribedTopicNames(names=sorted(said.topics)))
        if before.pattern != said.pattern if before is not None else said.pattern:
            request.subscribed_topic_regex = said.pattern
        if before is None or before.owned != said.owned:
            request.topic_partitions.CopyFrom(member_topics(said.owned or ()))
        return request

    def leave(self) -> pb.ConsumerGroupHeartbeatRequest:
        """Return the last heartbeat; a static member's tells that it will return."""
        self.reset()
        return self._bare(LEAVE_STATIC_EPOCH if self._settings.is_static else LEAVE_EPOCH)

    def _bare(self, epoch: int) -> pb.ConsumerGroupHeartbeatRequest:
        return pb.ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            group_instance_id=self._settings.group_instance_id,
        )
