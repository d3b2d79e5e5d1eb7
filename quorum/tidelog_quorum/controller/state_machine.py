"""The controller as a state machine: requests in, records and answers out.

State, and who changes it:

- ``committed``: the image of the committed log. Only :meth:`Controller.replay` changes it, on every controller alike.
- ``latest``: ``committed`` plus the entries that this controller wrote as leader and that are not committed yet, so
  that the next request sees them and requests need not wait for each other. :meth:`Controller.append` adds to it;
  losing the leadership drops it. An answer may go out only when all that ``latest`` held when it was made is committed.
- the brokers' sessions: soft, of the leader alone.

An entry is handled, then proposed, then appended: :attr:`Controller.next_offset` is the offset it must get, because it
is inside of the records (a broker's epoch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.config import at_least, not_empty, setting
from tidelog.ids import BrokerId, TopicId
from tidelog.v1 import admin_service_pb2, controller_service_pb2
from tidelog_quorum.controller import alter_partition, brokers, directories, topics
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.sessions import BrokerSessions
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller decides by."""

    cluster_id: str = setting(check=not_empty, doc="The cluster's id: who has another one is refused.")
    broker_session_timeout_ms: int = setting(
        9_000, check=at_least(1), doc="A node that is silent for longer is fenced, in milliseconds."
    )
    num_partitions: int = setting(1, check=at_least(1), doc="The partitions of a topic that does not say how many.")
    default_replication_factor: int = setting(
        1, check=at_least(1), doc="The replicas of a topic that does not say how many."
    )
    delete_topic_enable: bool = setting(True, doc="Whether topics may be deleted.")
    min_insync_replicas: int = setting(
        1, check=at_least(1), doc="The in-sync replicas that acks=all needs, where neither topic nor cluster says."
    )
    unclean_leader_election_enable: bool = setting(
        False, doc="Whether a replica that was not in sync may lead, where neither topic nor cluster says."
    )
    auto_leader_rebalance_enable: bool = setting(
        True, doc="Whether the leadership returns to the preferred replicas by itself."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, check=at_least(1), doc="How often that is looked after."
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        check=at_least(0),
        doc="A broker leads too few when more than so many percent of the partitions that prefer it have other leaders.",
    )


class Controller:
    """Created once per process; every method is called on the event loop, in the order of the log."""

    def __init__(self, config: ControllerConfig, new_topic_id: Callable[[], TopicId]) -> None:
        self._config = config
        self._defaults = topics.TopicDefaults(config.num_partitions, config.default_replication_factor)
        self._new_topic_id = new_topic_id
        self._sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._pending: deque[MetadataImage] = deque()
        self._committed = MetadataImage()
        self._active_epoch: int | None = None

    @property
    def committed(self) -> MetadataImage:
        """The image of the committed log."""
        return self._committed

    @property
    def latest(self) -> MetadataImage:
        """What requests are decided on: the committed image plus this leader's own uncommitted entries."""
        return self._pending[-1] if self._pending else self._committed

    @property
    def next_offset(self) -> int:
        """The offset that the next entry must get."""
        return self.latest.offset + 1

    @property
    def is_active(self) -> bool:
        """Whether requests may be handled."""
        return self._active_epoch is not None

    def activate(self, epoch: int, now_ms: int) -> None:
        """Begin to lead: everything that earlier leaders committed has been replayed, up to an entry of this epoch."""
        assert self._committed.epoch == epoch, f"led by {self._committed.epoch}, activated in {epoch}"
        assert not self._pending
        self._active_epoch = epoch
        self._sessions.restart(self._committed.brokers.values(), now_ms)

    def resign(self) -> None:
        """Stop leading: what is not committed may never be, and others hear the heartbeats."""
        self._active_epoch = None
        self._pending.clear()
        self._sessions.restart((), 0)

    def append(self, offset: int, epoch: int, records: Sequence[MetadataRecord]) -> None:
        """Let the following requests see an entry that was written and is not committed yet."""
        assert epoch == self._active_epoch, f"epoch {epoch} is not led: {self._active_epoch}"
        assert offset == self.next_offset, f"entry {offset} written, {self.next_offset} expected"
        self._pending.append(self.latest.apply(offset, epoch, records))

    def replay(self, offset: int, epoch: int, records: Sequence[MetadataRecord]) -> None:
        """Apply a committed entry. The only way in which the durable state changes.

        Raises:
            TidelogError: UNKNOWN_SERVER_ERROR when the entry does not fit; the state is as before.
        """
        if self._pending and (self._pending[0].offset, self._pending[0].epoch) == (offset, epoch):
            self._committed = self._pending.popleft()
            return
        assert not self._pending, f"entry {offset} of epoch {epoch} is not what this leader wrote"
        self._committed = self._committed.apply(offset, epoch, records)

    def handle_register_broker(
        self, request: controller_service_pb2.RegisterBrokerRequest, now_ms: int
    ) -> Result[controller_service_pb2.RegisterBrokerResponse]:
        """See :func:`~tidelog_quorum.controller.brokers.register_broker`."""
        return brokers.register_broker(self.latest, self._sessions, self._config.cluster_id, request, now_ms)

    def handle_broker_heartbeat(
        self, request: controller_service_pb2.BrokerHeartbeatRequest, now_ms: int
    ) -> Result[controller_service_pb2.BrokerHeartbeatResponse]:
        """See :func:`~tidelog_quorum.controller.brokers.heartbeat`."""
        return brokers.heartbeat(self.latest, self._sessions, request, now_ms)

    def handle_alter_partition(
        self, request: controller_service_pb2.AlterPartitionRequest, now_ms: int
    ) -> Result[controller_service_pb2.AlterPartitionResponse]:
        """See :func:`~tidelog_quorum.controller.alter_partition.alter_partition`."""
        return alter_partition.alter_partition(self.latest, request)

    def handle_assign_replicas_to_dirs(
        self, request: controller_service_pb2.AssignReplicasToDirsRequest, now_ms: int
    ) -> Result[controller_service_pb2.AssignReplicasToDirsResponse]:
        """See :func:`~tidelog_quorum.controller.directories.assign_replicas_to_directories`."""
        return directories.assign_replicas_to_directories(self.latest, request)

    def handle_create_topics(
        self, request: admin_service_pb2.CreateTopicsRequest, now_ms: int
    ) -> Result[admin_service_pb2.CreateTopicsResponse]:
        """See :func:`~tidelog_quorum.controller.topics.create_topics`."""
        return topics.create_topics(self.latest, self._defaults, self._new_topic_id, request)

    def handle_delete_topics(
        self, request: admin_service_pb2.DeleteTopicsRequest, now_ms: int
    ) -> Result[admin_service_pb2.DeleteTopicsResponse]:
        """See :func:`~tidelog_quorum.controller.topics.delete_topics`."""
        return topics.delete_topics(self.latest, request)

    def expire_sessions(self, now_ms: int) -> Result[frozenset[BrokerId]]:
        """Fence the brokers that were silent for too long; the response names them."""
        return brokers.expire_sessions(self.latest, self._sessions, now_ms)

    def prolong_sessions(self, now_ms: int) -> None:
        """Give every broker a full session from now on, because this process could not listen for a while."""
        self._sessions.prolong(now_ms)

    def check_invariants(self) -> None:
        """Assert what holds between any two events."""
        offset = self._committed.offset
        for image in self._pending:
            assert image.offset == offset + 1
            assert image.epoch == self._active_epoch
            offset = image.offset
        for image in (self._committed, self.latest):
            image.check_invariants()
            check_membership(image)


def check_membership(image: MetadataImage) -> None:
    """Assert that only replicas that can serve lead, and that an ISR of several members has only such."""
    for topic, index, partition in image.partitions():
        active = {b for b in partition.replicas if image.can_serve(partition, b)}
        where = f"{topic.name}-{index}: {partition}, active {active}"
        assert partition.leader in active | {-1}, f"an inactive leader: {where}"
        assert len(partition.isr) == 1 or set(partition.isr) <= active, f"an inactive ISR member: {where}"
        assert partition.leader != -1 or not active & set(partition.isr), f"a leader was possible: {where}"
