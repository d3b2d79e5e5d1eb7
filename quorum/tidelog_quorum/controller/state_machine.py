"""The controller as a state machine: requests in, records and answers out.

State, and the methods that change it:

- ``committed``: the image of the committed log. Only :meth:`Controller.replay` changes it, in the same way on every
  controller.
- ``latest``: ``committed`` plus the entries that this controller wrote as leader and that are not committed yet, so
  that the next request sees them and requests need not wait for each other. :meth:`Controller.append` adds to it;
  losing the leadership drops it. An answer may be sent only when everything in ``latest`` at its creation is committed.
- the brokers' sessions and the queue of partitions to settle: soft state of the leader alone.

An entry is handled, then proposed, then appended: :attr:`Controller.next_offset` is the offset that it must get,
because its records contain it (as a broker's epoch).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, get_type_hints

from tidelog_foundation.ids import NO_BROKER, TopicId
from tidelog_foundation.requests.request import Request
from tidelog_quorum.controller.acls import create_acls, delete_acls
from tidelog_quorum.controller.alter_partition import alter_partition
from tidelog_quorum.controller.brokers import expire_sessions, fence_refused, heartbeat
from tidelog_quorum.controller.client_quotas import alter_client_quotas
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.configs import incremental_alter_configs
from tidelog_quorum.controller.create_partitions import create_partitions
from tidelog_quorum.controller.delegation_tokens import alter_delegation_token, remove_expired_tokens
from tidelog_quorum.controller.directories import assign_replicas_to_directories
from tidelog_quorum.controller.elect_leaders import elect_leaders
from tidelog_quorum.controller.features import bootstrap, update_features
from tidelog_quorum.controller.leader_balance import LeaderBalance
from tidelog_quorum.controller.links import alter_cluster_link, create_cluster_link, delete_cluster_link
from tidelog_quorum.controller.mirror_settings import report_mirror_settings
from tidelog_quorum.controller.mirrors import alter_mirror_topics, create_mirror_topic, report_mirror_partitions
from tidelog_quorum.controller.producer_ids import allocate_producer_ids
from tidelog_quorum.controller.reassignment import alter_partition_reassignments
from tidelog_quorum.controller.registration import register_broker, unregister_broker
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.scram import alter_user_scram_credentials
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.controller.topics import create_topics, delete_topics
from tidelog_quorum.metadata.features import uses_elr
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord, PartitionChangeRecord, RegisterBrokerRecord

R = TypeVar("R")
ChangedPartition: TypeAlias = tuple[TopicId, int]

_HANDLERS: Mapping[type[Any], Callable[[ControllerState, Any, int], Result[Any]]] = {
    get_type_hints(handler)["request"]: handler
    for handler in (
        register_broker,
        unregister_broker,
        heartbeat,
        fence_refused,
        alter_partition,
        assign_replicas_to_directories,
        allocate_producer_ids,
        create_topics,
        delete_topics,
        create_partitions,
        incremental_alter_configs,
        elect_leaders,
        alter_partition_reassignments,
        update_features,
        create_acls,
        delete_acls,
        alter_user_scram_credentials,
        alter_client_quotas,
        alter_delegation_token,
        remove_expired_tokens,
        create_cluster_link,
        alter_cluster_link,
        delete_cluster_link,
        create_mirror_topic,
        alter_mirror_topics,
        report_mirror_partitions,
        report_mirror_settings,
    )
}
"""The handler of each type of request."""


class PeriodicTask(enum.Enum):
    """Work of a tick, in this order."""

    EXPIRE_SESSIONS = enum.auto()
    SETTLE_AND_BALANCE = enum.auto()
    """Settle partitions, entry by entry until none waits, then balance leaders."""


class Controller(ControllerState):
    """The state machine; created once per process, and called on the event loop, in log order."""

    def __init__(
        self, config: ControllerConfig, topic_ids: Iterator[TopicId], first_records: Iterable[MetadataRecord] = ()
    ) -> None:
        """Begin with an empty log. A new cluster that this controller bootstraps begins with ``first_records``."""
        super().__init__(config, topic_ids)
        self._first_records = tuple(first_records)
        self._balance = LeaderBalance(
            config.leader_imbalance_check_interval_seconds * 1_000, config.leader_imbalance_per_broker_percentage
        )
        self._active_epoch: int | None = None
        self._pending_changes: deque[tuple[ChangedPartition, ...]] = deque()
        """The partitions whose leader or ISR each of the pending entries changes."""
        self.elections = 0
        """The number of elections of partition leaders by this controller."""
        self.unclean_elections = 0
        """The number of those whose leader may lack committed records."""

    @property
    def next_offset(self) -> int:
        """The offset that the next entry must get."""
        return self.latest.offset + 1

    @property
    def is_active(self) -> bool:
        """True if this controller may handle requests."""
        return self._active_epoch is not None

    def activate(self, epoch: int, now_ms: int) -> None:
        """Begin to lead. All entries of earlier leaders have been replayed, up to an entry of this epoch."""
        assert self.committed.epoch == epoch, f"led by {self.committed.epoch}, activated in {epoch}"
        assert not self._pending
        self._active_epoch = epoch
        self._balance.restart(now_ms)
        self.sessions.restart(self.committed.brokers.values(), now_ms, self.committed.offset)
        self.queue.restart(self.committed)

    def resign(self) -> None:
        """Stop leading: uncommitted entries may never commit, and another controller gets the heartbeats."""
        self._active_epoch = None
        self._forget_pending()
        self.sessions.restart((), 0)
        self.queue.forget()
        self.drained.clear()

    def append(self, offset: int, epoch: int, records: Sequence[MetadataRecord]) -> None:
        """Make an entry that was written, but is not committed yet, visible to the following requests.

        Its offset is above :attr:`next_offset` if the Raft engine has written entries of its own in between.
        """
        assert epoch == self._active_epoch, f"epoch {epoch} is not led: {self._active_epoch}"
        assert offset >= self.next_offset, f"entry {offset} written, {self.next_offset} expected"
        before = self.latest
        self._pending.append(before.apply(offset, epoch, records))
        self._pending_changes.append(_changed_partitions(records))
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                self._count_election(before, record)
            elif isinstance(record, RegisterBrokerRecord):
                self.sessions.note_registered(record.broker_id, offset)

    def replay(self, offset: int, epoch: int, records: Iterable[MetadataRecord]) -> tuple[ChangedPartition, ...]:
        """Apply a committed entry. Only this method and :meth:`restore` change the durable state.

        ``records`` are ignored if this leader wrote the entry itself. Then the result has the partitions whose leader
        or ISR the entry changes; that of another leader's entry is empty.

        Raises:
            TidelogError: UNKNOWN_SERVER_ERROR, the entry does not fit; the state is unchanged.
        """
        own = self._pending[0] if self._pending else None
        if own is not None and (own.offset, own.epoch) == (offset, epoch):
            # In this order, so that a long request in another thread never sees less than there was.
            self.committed = own
            self._pending.popleft()
            return self._pending_changes.popleft()
        records = list(records)
        is_engines_own = not records and own is not None and offset < own.offset
        assert own is None or is_engines_own, f"entry {offset} of epoch {epoch} is not what this leader wrote"
        self.committed = self.committed.apply(offset, epoch, records)
        return ()

    def restore(self, image: MetadataImage) -> None:
        """Replace the state with that of a snapshot."""
        assert not self.is_active, "a leader has all that is committed"
        assert image.offset > self.committed.offset, f"a snapshot of {image.offset} after {self.committed.offset}"
        self._forget_pending()
        self.committed = image

    def bootstrap(self) -> Result[None]:
        """Return the first records of a new cluster; none once it has a ``metadata.version``."""
        return bootstrap(self.latest, self.own, self._first_records)

    def tick(self, task: PeriodicTask, now_ms: int) -> tuple[Result[object], PeriodicTask | None]:
        """Return the next result of a task, and the task to continue with once it is written; None at the end."""
        if task is PeriodicTask.EXPIRE_SESSIONS:
            result = expire_sessions(self, now_ms)
            return result, PeriodicTask.SETTLE_AND_BALANCE
        self.queue.note_settings(self.latest)
        if not self.queue.is_idle:
            return Result(self.queue.go_on(self.latest), None), PeriodicTask.SETTLE_AND_BALANCE
        if not self.config.auto_leader_rebalance_enable:
            return Result([], None), None
        return Result(self._balance.step(self.latest, self.rules_of, now_ms), None, atomic=False), None

    def handle(self, request: Request[R], now_ms: int) -> Result[R]:
        """Return the result of a request by the handler of its type; see there for the errors."""
        return _HANDLERS[type(request)](self, request, now_ms)

    def check_invariants(self) -> None:
        """Assert the invariants that hold between any two events."""
        offset = self.committed.offset
        for image in self._pending:
            assert image.offset > offset
            assert image.epoch == self._active_epoch
            offset = image.offset
        assert len(self._pending_changes) == len(self._pending)
        for image in (self.committed, self.latest):
            image.check_invariants()
        if self.is_active:
            check_settled(self.latest, self.queue.waiting())

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_changes.clear()

    def _count_election(self, before: MetadataImage, change: PartitionChangeRecord) -> None:
        topic = before.topic_by_id(change.topic_id)
        partition = None if topic is None else topic.partitions.get(change.partition_id)
        if change.leader is None or change.leader == NO_BROKER or partition is None:
            return
        if change.leader != partition.leader:
            self.elections += 1
            has_all = change.leader in partition.isr or change.leader in partition.eligible_leader_replicas
            self.unclean_elections += not has_all


def _changed_partitions(records: Iterable[MetadataRecord]) -> tuple[ChangedPartition, ...]:
    changes = (record for record in records if isinstance(record, PartitionChangeRecord))
    changed = ((c.topic_id, c.partition_id) for c in changes if c.leader is not None or c.isr is not None)
    return tuple(dict.fromkeys(changed))


def check_settled(image: MetadataImage, waiting: Container[tuple[TopicId, int]] = ()) -> None:
    """Assert that all leaders, and all members of larger ISRs, can serve; skip the ``waiting`` partitions."""
    elr_in_use = uses_elr(image)
    for topic, index, partition in image.partitions():
        if (topic.topic_id, index) in waiting:
            continue
        active = {b for b in partition.replicas if image.can_serve(partition, b)}
        isr, elr = set(partition.isr), set(partition.eligible_leader_replicas)
        where = f"{topic.name}-{index}: {partition}, active {active}"
        assert isr or elr_in_use, f"the ISR is empty: {where}"
        assert elr_in_use or not elr, f"an ELR that is not in use: {where}"
        assert partition.leader in active | {-1}, f"an inactive leader: {where}"
        assert isr <= active or (len(isr) == 1 and not elr_in_use), f"an inactive ISR member: {where}"
        assert partition.leader != -1 or not active & (isr or elr), f"a leader was possible: {where}"
