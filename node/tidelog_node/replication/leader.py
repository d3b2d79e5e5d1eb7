"""One leader epoch of a partition's leader: follower progress, the in-sync set and the high watermark.

The rules and their sources:

- The high watermark is the minimum of the log ends over the *maximal* in-sync set (``isr.py``), over followers that
  have fetched in this leader epoch (KIP-320) and over those about to join. It advances only while the committed set has
  at least min.insync.replicas members (KIP-966), and never goes back. A member that the controller removes, for example
  after its log directory failed, is not about to join again: the high watermark does not wait for it.
- A follower joins when it has reached the high watermark and the start of the leader's epoch, and is neither fenced,
  shutting down nor restarted (KIP-497, KIP-841, KIP-903). It leaves after ``replica.lag.time.max.ms`` without catching
  up. One change is in flight at a time. A change of unknown outcome stays pending until the controller's answer or the
  metadata log settles it. The leader forgets a refused proposal only when the controller can no longer store an earlier
  copy of it. Otherwise the leader first withdraws it, which changes the partition epoch that every copy names.
- A smaller set takes effect when the metadata log contains it, not with the controller's answer to the proposal. A
  replica that leaves may become eligible to lead (KIP-966), by the min.insync.replicas at that time. This leader must
  not use an older, lower value to commit without that replica; in the log, the change of the value comes first.
- The leader refuses a write with acks=all before the append when the set is too small. After the append, the write is
  satisfied when the high watermark has passed it and the set is still large enough.
- Records may be deleted up to the high watermark. They are gone when the logs of all replicas on live nodes, in sync or
  not, start above them; a node that comes back later adopts the start of its leader's log (KIP-107).
- Until the high watermark has reached the start of the epoch, the latest offset is not known (KIP-207).
- The leader of a mirror is subordinate to the source: only there, a truncation or a restart of the log moves the high
  watermark, and back, if the source has lost committed records. The leader then forgets what its followers have. Their
  next fetches name the epochs of their last batches, and count again once they match this log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.replication import events
from tidelog_node.replication.commands import AdvanceHighWatermark, AdvanceLogStart, Command, ProposeIsr
from tidelog_node.replication.isr import (
    CommittedIsr,
    FormerLeadership,
    IsrState,
    PendingExpand,
    PendingIsr,
    PendingShrink,
    PendingWithdrawal,
)
from tidelog_node.replication.progress import NEVER_MS, NO_BROKER_EPOCH, FetchLease, FollowerProgress

HIGH_WATERMARK = -1
"""The requested offset that stands for the high watermark: delete all committed records."""

_METADATA_FOLLOWS = (
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_REQUEST,
)


class LeaderState:
    """Leader state of one leader epoch. ``PartitionState`` creates it, drives it, and drops it at the epoch's end."""

    def __init__(
        self,
        local_id: BrokerId,
        registration: events.RegistrationChanged,
        high_watermark: int,
        min_insync_replicas: int,
        max_lag_ms: int,
        eligible: Mapping[BrokerId, BrokerEpoch],
        registered: Mapping[BrokerId, BrokerEpoch],
        now_ms: int,
    ) -> None:
        self.local_id = local_id
        self.leader_epoch: LeaderEpoch = registration.leader_epoch
        self.is_mirror = registration.is_mirror
        self.epoch_start_offset = registration.log_end_offset
        self.log_end_offset = registration.log_end_offset
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.eligible = eligible
        self.registered = registered
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.isr: IsrState = CommittedIsr(registration.isr, registration.partition_epoch)
        self._max_lag_ms = max_lag_ms
        self._proposal_id = 0
        self._is_in_doubt = False
        """True while the outcome of an earlier copy of the pending proposal is unknown."""
        self._update_followers(registration.replicas, now_ms)

    @property
    def partition_epoch(self) -> PartitionEpoch:
        """The partition epoch that a proposal names."""
        return self.isr.committed.partition_epoch

    @property
    def leadership(self) -> FormerLeadership:
        """The state that a leader of this epoch needs if the log is opened again."""
        epochs = {replica_id: progress.broker_epoch for replica_id, progress in self.followers.items()}
        return FormerLeadership(self.leader_epoch, self.isr, epochs)

    @property
    def effective_min_isr(self) -> int:
        """``min.insync.replicas``, bounded by the number of replicas."""
        return min(self.min_insync_replicas, len(self.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """True while the leader refuses acks=all writes and the high watermark stands still."""
        members, most = len(self.isr.members), len(self.followers) + 1
        return members < self.min_insync_replicas and members < most

    @property
    def successors(self) -> frozenset[BrokerId]:
        """The other members of the ISR that may lead: neither fenced nor shutting down."""
        return frozenset(self.isr.members & self.eligible.keys() - {self.local_id})

    def change_registration(self, registration: events.RegistrationChanged, now_ms: int) -> list[Command]:
        """Apply the controller's newer state of the partition within the same leader epoch."""
        for taken_out in self.followers.keys() & (self.isr.members - registration.isr):
            self.followers[taken_out].expect_nothing()
        self.isr = CommittedIsr(registration.isr, registration.partition_epoch)
        self._update_followers(registration.replicas, now_ms)
        return self.advance(now_ms)

    def resume(self, former: FormerLeadership, now_ms: int) -> list[Command]:
        """Continue with the in-sync set that a former state of this leader epoch knew, instead of an older one.

        The outcome of a proposal that was on its way is unknown.
        """
        replicas, self.followers = (self.local_id, *self.followers), {}
        self.isr = former.isr
        self._update_followers(replicas, now_ms)
        for replica_id, progress in self.followers.items():
            progress.broker_epoch = former.broker_epochs.get(replica_id, NO_BROKER_EPOCH)
        if isinstance(self.isr, CommittedIsr):
            return []
        self._is_in_doubt = True
        return self._propose(self.isr)

    def record_append(self, log_end_offset: int, now_ms: int) -> list[Command]:
        """Process the leader's own append."""
        assert log_end_offset >= self.log_end_offset, f"{log_end_offset} < {self.log_end_offset}"
        for progress in self.followers.values():
            progress.end_lease()
        self.log_end_offset = log_end_offset
        return self.advance(now_ms)

    def cut_log(self, log_end_offset: int) -> None:
        """Process a truncation of a mirror's log by the source's answer."""
        assert self.is_mirror, "only the source of a mirror may truncate a leader's log"
        self._move_log_end(log_end_offset, min(self.high_watermark, log_end_offset))

    def restart_log(self, offset: int) -> None:
        """Process the restart of a mirror's log at the source's log start."""
        assert self.is_mirror, "only the source of a mirror may restart a leader's log"
        self._move_log_end(offset, offset)

    def follow_source_start(self, event: events.SourceStartMoved) -> list[Command]:
        """Delete the records that the source of a mirror has deleted, as far as they are committed here."""
        deleted_below = min(event.source_log_start_offset, self.high_watermark)
        return [AdvanceLogStart(deleted_below)] if deleted_below > event.log_start_offset else []

    def record_fetch(self, event: events.FollowerFetched, now_ms: int) -> list[Command]:
        """Process a follower's fetch that matched this log, after ``check_follower`` passed."""
        self.check_follower(event.replica_id, event.replica_epoch)
        progress = self.followers[event.replica_id]
        progress.record_fetch(
            event.fetch_offset, event.log_start_offset, event.replica_epoch, self.log_end_offset, now_ms, event.lease
        )
        proposals = self._maybe_expand(event.replica_id)
        advances = self.advance(now_ms)
        return proposals + advances if proposals else advances

    def has_lease(self, replica_id: BrokerId, lease: FetchLease) -> bool:
        """Return whether fetches of the session with this lease count as the follower's fetches of the partition."""
        progress = self.followers.get(replica_id)
        return progress is not None and progress.lease is lease

    def end_lease(self, event: events.FetchLeaseEnded) -> None:
        """Stop counting fetches of the session as fetches of this partition."""
        if self.has_lease(event.replica_id, event.lease):
            self.followers[event.replica_id].end_lease()

    def check_follower(self, replica_id: BrokerId, replica_epoch: BrokerEpoch) -> None:
        """Raise unless a fetch comes from a follower of this partition in its latest registration.

        The metadata alone determines the latest registration: if a fetch's claimed epoch counted, any client could shut
        the follower out.

        Raises:
            TidelogError: UNKNOWN_LEADER_EPOCH: the follower may know a newer assignment or registration than this
                leader; NOT_LEADER_OR_FOLLOWER: the fetch is from an earlier start of the follower (KIP-903).
        """
        if replica_id not in self.followers:
            text = f"node {replica_id} is not among the replicas {sorted([self.local_id, *self.followers])}"
            raise error_for(ErrorCode.UNKNOWN_LEADER_EPOCH, text)
        known = self.registered.get(replica_id, NO_BROKER_EPOCH)
        if replica_epoch != known:
            text = f"node {replica_id} fetched with broker epoch {replica_epoch}, its latest is {known}"
            is_earlier = replica_epoch < known
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_earlier else ErrorCode.UNKNOWN_LEADER_EPOCH, text)

    def shrink(self, now_ms: int) -> list[Command]:
        """Propose to remove the members that have lagged for too long."""
        if not isinstance(self.isr, CommittedIsr):
            return []
        lagging = frozenset(m for m in self.isr.members if m != self.local_id and self._is_lagging(m, now_ms))
        if not lagging:
            return []
        self._is_in_doubt = False
        return self._propose(PendingShrink(self.isr, lagging))

    def accept(self, event: events.IsrChangeAccepted, now_ms: int) -> list[Command]:
        """Apply the controller's answer to the proposal in flight, unless it removes a member."""
        if not self._is_current(event.proposal_id) or event.leader_epoch != self.leader_epoch:
            return []
        if not self.isr.committed.members <= event.isr:
            return []
        if event.partition_epoch < self.partition_epoch or self.local_id not in event.isr:
            return []
        if isinstance(self.isr, PendingWithdrawal) and event.partition_epoch == self.partition_epoch:
            return []
        self.isr = CommittedIsr(event.isr, event.partition_epoch)
        return self.advance(now_ms)

    def refuse(self, event: events.IsrChangeRefused) -> list[Command]:
        """Forget the proposal when it was certainly not stored, withdraw it, wait for metadata, or send it again."""
        if not self._is_current(event.proposal_id):
            return []
        assert not isinstance(self.isr, CommittedIsr)
        if event.code in _METADATA_FOLLOWS:
            return []
        if event.code is not ErrorCode.INELIGIBLE_REPLICA or isinstance(self.isr, PendingWithdrawal):
            self._is_in_doubt = True
            return self._propose(self.isr)
        if isinstance(self.isr, PendingExpand) and self._is_in_doubt:
            # A controller that another one has replaced may refuse what that one stored, and an earlier copy of the
            # proposal may arrive after this answer.
            return self._propose(PendingWithdrawal(self.isr.committed, self.isr.joining))
        self.isr = self.isr.committed
        return []

    def advance(self, now_ms: int) -> list[Command]:
        """Raise the high watermark to the minimum that the replicas have reached."""
        if self.is_under_min_isr:
            return []
        reached, maximal = self.log_end_offset, self.isr.maximal
        for replica_id, progress in self.followers.items():
            if progress.log_end_offset >= reached:
                continue
            if replica_id in maximal or self._is_about_to_join(replica_id, progress, now_ms):
                reached = progress.log_end_offset
                if reached <= self.high_watermark:
                    return []
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    def in_sync_followers(self, fetch_offset: int) -> Iterator[tuple[BrokerId, FollowerProgress]]:
        """Yield the followers from which a consumer may read from ``fetch_offset`` on (KIP-392)."""
        for replica_id, progress in self.followers.items():
            has_offset = progress.log_start_offset <= fetch_offset <= progress.log_end_offset
            if has_offset and replica_id in self.isr.members:
                yield replica_id, progress

    def check_enough_replicas(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS if the in-sync set is too small for an acks=all write."""
        if self.is_under_min_isr:
            raise error_for(ErrorCode.NOT_ENOUGH_REPLICAS, self.describe_isr("is"))

    def is_replicated(self, required_offset: int) -> bool:
        """Return True if all in-sync replicas have every record below ``required_offset``.

        Raises:
            TidelogError: NOT_ENOUGH_REPLICAS_AFTER_APPEND: they do, but are now fewer than min.insync.replicas.
        """
        if self.high_watermark < required_offset:
            return False
        if len(self.isr.maximal) < self.effective_min_isr:
            raise error_for(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, self.describe_isr("has shrunk to"))
        return True

    def describe_isr(self, verb: str) -> str:
        """Return the in-sync members and the required number of them, for an error's text."""
        members = sorted(self.isr.members)
        return f"the ISR {verb} {members}, min.insync.replicas is {self.min_insync_replicas}"

    def latest_offset(self) -> int:
        """Return the high watermark as the partition's latest offset for consumers.

        Raises:
            TidelogError: OFFSET_NOT_AVAILABLE: it has not reached the start of this leader's epoch (KIP-207).
        """
        if self.high_watermark < self.epoch_start_offset:
            raise error_for(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark {self.high_watermark} has not reached {self.epoch_start_offset}, "
                f"where leader epoch {self.leader_epoch} begins",
            )
        return self.high_watermark

    def deletion_offset(self, requested_offset: int) -> int:
        """Return the offset below which a request deletes; -1 stands for the high watermark (KIP-107).

        Raises:
            TidelogError: OFFSET_OUT_OF_RANGE: the requested offset is neither -1 nor from 0 to the high watermark.
        """
        offset = self.high_watermark if requested_offset == HIGH_WATERMARK else requested_offset
        if not 0 <= offset <= self.high_watermark:
            text = f"records below offset {requested_offset} cannot be deleted, the high watermark is"
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text} {self.high_watermark}")
        return offset

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start of all live replicas; this replica's is ``log_start_offset``.

        Return -1 while a live follower has not fetched in this leader epoch.
        """
        starts = (f.log_start_offset for broker_id, f in self.followers.items() if broker_id in self.eligible)
        return min([log_start_offset, *starts])

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert 0 <= self.high_watermark <= self.log_end_offset, (self.high_watermark, self.log_end_offset)
        assert self.epoch_start_offset <= self.log_end_offset
        assert self.local_id not in self.followers
        assert self.local_id in self.isr.members, self.isr
        assert self.isr.members <= self.isr.maximal
        for replica_id, progress in self.followers.items():
            assert progress.lease is None or progress.log_end_offset == self.log_end_offset, (replica_id, progress)
        if isinstance(self.isr, PendingShrink):
            assert self.local_id not in self.isr.leaving
        if isinstance(self.isr, PendingExpand):
            assert self.isr.joining in self.followers

    def _move_log_end(self, log_end_offset: int, high_watermark: int) -> None:
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.epoch_start_offset = min(self.epoch_start_offset, log_end_offset)
        for progress in self.followers.values():
            progress.forget_offsets()

    def _update_followers(self, replicas: tuple[BrokerId, ...], now_ms: int) -> None:
        """Give a member of the ISR the whole lag time before a removal; other replicas start as not caught up."""
        known = self.followers
        since = {r: now_ms if r in self.isr.members else NEVER_MS for r in replicas if r != self.local_id}
        self.followers = {r: known.get(r) or FollowerProgress(since_ms) for r, since_ms in since.items()}

    def _maybe_expand(self, replica_id: BrokerId) -> list[Command]:
        if not isinstance(self.isr, CommittedIsr) or replica_id in self.isr.members:
            return []
        progress = self.followers[replica_id]
        has_reached = progress.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
        if not has_reached or not self._is_eligible(replica_id, progress):
            return []
        self._is_in_doubt = False
        return self._propose(PendingExpand(self.isr, replica_id))

    def _propose(self, pending: PendingIsr) -> list[Command]:
        self.isr = pending
        self._proposal_id += 1
        members = tuple((m, self._broker_epoch(m)) for m in sorted(pending.proposed))
        return [ProposeIsr(self._proposal_id, self.leader_epoch, self.partition_epoch, members)]

    def _is_current(self, proposal_id: int) -> bool:
        return not isinstance(self.isr, CommittedIsr) and proposal_id == self._proposal_id

    def _broker_epoch(self, replica_id: BrokerId) -> BrokerEpoch:
        if replica_id == self.local_id:
            return self.eligible.get(replica_id, NO_BROKER_EPOCH)
        return self.followers[replica_id].broker_epoch

    def _is_eligible(self, replica_id: BrokerId, progress: FollowerProgress) -> bool:
        return self.eligible.get(replica_id) == progress.broker_epoch

    def _is_about_to_join(self, replica_id: BrokerId, progress: FollowerProgress, now_ms: int) -> bool:
        caught_up = progress.is_caught_up(self.log_end_offset, now_ms, self._max_lag_ms)
        return caught_up and self._is_eligible(replica_id, progress)

    def _is_lagging(self, replica_id: BrokerId, now_ms: int) -> bool:
        progress = self.followers.get(replica_id)
        return progress is None or not progress.is_caught_up(self.log_end_offset, now_ms, self._max_lag_ms)
