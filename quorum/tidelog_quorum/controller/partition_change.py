"""The change of one partition when its ISR, its replicas or the brokers change: Kafka's PartitionChangeBuilder.

A pure function of the partition, of the brokers *as they are after the change*, and of the topic's rules. Only this
module elects leaders, maintains the eligible leader replicas (ELR, KIP-966) and completes reassignments (KIP-455). In
this order:

1. **Reassignment.** When the target ISR without ``removing`` has every one of the target replicas without ``removing``,
   the reassignment is complete: replicas and ISR lose ``removing``; ``adding`` and ``removing`` become empty.
2. **ELR**, if it is in use. ``min_isr`` is at most the number of replicas. With at least that many members in the ISR
   the ELR is empty. Otherwise it has those members of the former ISR and ELR that are not in the ISR, except those with
   an unclean shutdown: below ``min_isr`` the high watermark does not advance, so each has all committed records.
3. **Election.** A leader can serve: its broker is registered, not fenced, not shutting down, and its log directory is
   online. It is in the ISR or, if that is empty, in the ELR. The current leader stays if it qualifies; otherwise the
   first that qualifies in the order of the replicas follows (``PREFERRED``: the first replica comes before the current
   leader). If none qualifies: with an empty ISR and ELR the last known leader, then (``UNCLEAN``) the first replica
   that can serve, otherwise no leader, -1. A leader from outside the ISR becomes its only member, and rule 2 is applied
   to that ISR again; the ELR is empty if the new leader was in neither.
4. **An empty ISR** is kept only if the ELR is in use. Otherwise a last member stays, without leading: the former
   leader, because it has all acknowledged records.
5. **Last known leader.** ``last_known_elr`` names the leader at the time the ISR became empty; it is empty with a
   leader.
6. **Epochs.** The record names a leader, which increments the leader epoch, if the leader changes or a replica is
   removed; a shrink of the ISR alone only increments the partition epoch (since Kafka 3.6, KAFKA-15021).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import NO_BROKER, UNASSIGNED_DIRECTORY, BrokerId, DirectoryId, TopicId
from tidelog_quorum.metadata.records import PartitionChangeRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration

Replicas = tuple[BrokerId, ...]
T = TypeVar("T")


class Election(enum.Enum):
    """The way to choose a leader when the current one may be replaced."""

    PREFERRED = enum.auto()
    """The first replica if it may lead; otherwise like ``ONLINE``."""
    ONLINE = enum.auto()
    """The current leader if it may lead, otherwise another replica with all committed records."""
    UNCLEAN = enum.auto()
    """Like ``ONLINE``, but if there is none, any replica that can serve: records that only others have are lost."""


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The election rules from a topic's configuration and the cluster's features: see ``elections.rules_of``."""

    min_isr: int = 1
    uses_elr: bool = False
    allows_unclean: bool = False

    @property
    def election(self) -> Election:
        """The election that is allowed whenever a partition needs a leader."""
        return Election.UNCLEAN if self.allows_unclean else Election.ONLINE


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """The desired state of a partition; None leaves a field unchanged.

    ``directories`` has only those that change. ``unclean_shutdown`` are replicas that may have lost records: the caller
    has removed them from ``isr``, and they may not be in the ELR.
    """

    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    directories: Mapping[BrokerId, DirectoryId] = field(default_factory=lambda: MappingProxyType({}))
    unclean_shutdown: frozenset[BrokerId] = frozenset()


UNCHANGED = PartitionTarget()
_NOTHING = (None,) * 8


def partition_change(
    brokers: Mapping[BrokerId, BrokerRegistration],
    rules: ElectionRules,
    topic_id: TopicId,
    index: int,
    partition: PartitionRegistration,
    target: PartitionTarget = UNCHANGED,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """Return the record that changes ``partition`` by the rules above, or None if nothing changes.

    ``brokers`` are the registrations after the change; for an ordinary change ``election`` is ``rules.election``.
    """
    change = _Change(brokers, rules, partition, target)
    change.complete_reassignment()
    change.keep_eligible()
    change.elect(election)
    change.complete_with_elected()
    change.keep_last_member()
    change.note_last_known_leader()
    return change.record(topic_id, index)


class _Change:
    """A change under construction; each method is called once, in the order of the rules."""

    def __init__(
        self,
        brokers: Mapping[BrokerId, BrokerRegistration],
        rules: ElectionRules,
        partition: PartitionRegistration,
        target: PartitionTarget,
    ) -> None:
        self._brokers = brokers
        self._rules = rules
        self._before = partition
        self._target = target
        self._isr = self._present_isr() if target.isr is None else target.isr
        self._replicas = partition.replicas if target.replicas is None else target.replicas
        self._adding = partition.adding_replicas if target.adding is None else target.adding
        self._removing = partition.removing_replicas if target.removing is None else target.removing
        self._elr: Replicas = ()
        self._last_known = partition.last_known_elr if rules.uses_elr else ()
        self._leader = partition.leader

    def complete_reassignment(self) -> None:
        if not self._adding and not self._removing:
            return
        isr = tuple(b for b in self._isr if b not in self._removing)
        replicas = tuple(b for b in self._replicas if b not in self._removing)
        if isr and replicas and set(replicas) <= set(isr):
            self._isr, self._replicas, self._adding, self._removing = isr, replicas, (), ()

    def keep_eligible(self) -> None:
        before, isr = self._before, self._isr
        if not self._rules.uses_elr or len(isr) >= min(self._rules.min_isr, len(self._replicas)):
            self._elr = ()
            return
        held = {*before.isr, *before.eligible_leader_replicas}.difference(isr, self._target.unclean_shutdown)
        self._elr = tuple(b for b in self._replicas if b in held) if held else ()

    def elect(self, election: Election) -> None:
        electable = self._isr or self._elr
        self._leader = self._elect_among(electable, preferred=election is Election.PREFERRED)
        if self._leader == NO_BROKER:
            self._leader = self._elect_unclean(election)
        if self._leader != NO_BROKER and self._leader not in self._isr:
            clean = self._leader in self._elr
            self._isr = (self._leader,)
            enough = min(self._rules.min_isr, len(self._replicas)) <= 1
            self._elr = tuple(b for b in self._elr if b != self._leader) if clean and not enough else ()

    def complete_with_elected(self) -> None:
        """Complete a reassignment that only waited for the elected replica, which was not in the ISR."""
        self.complete_reassignment()
        enough = len(self._isr) >= min(self._rules.min_isr, len(self._replicas))
        self._elr = () if enough else tuple(b for b in self._elr if b in self._replicas)

    def keep_last_member(self) -> None:
        if self._isr or self._rules.uses_elr:
            return
        before = self._before
        known = (before.leader, *before.isr, *before.eligible_leader_replicas, *before.last_known_elr, *self._replicas)
        self._isr = next((b,) for b in known if b in self._replicas)

    def note_last_known_leader(self) -> None:
        if self._leader != NO_BROKER or not self._rules.uses_elr:
            self._last_known = ()
        elif not self._isr and (self._before.isr or self._before.leader != NO_BROKER):
            led = self._before.leader
            self._last_known = (led,) if led != NO_BROKER else self._before.isr[:1]
        if self._last_known:
            self._last_known = tuple(b for b in self._last_known if b in self._replicas)

    def record(self, topic_id: TopicId, index: int) -> PartitionChangeRecord | None:
        before = self._before
        is_taken_away = self._replicas is not before.replicas and not set(before.replicas) <= set(self._replicas)
        bumps_leader_epoch = self._leader != before.leader or is_taken_away
        changes = (
            self._leader if bumps_leader_epoch else None,
            _changed(before.isr, self._isr),
            _changed(before.replicas, self._replicas),
            _changed(before.eligible_leader_replicas, self._elr),
            _changed(before.last_known_elr, self._last_known),
            self._changed_directories(),
            _changed(before.adding_replicas, self._adding),
            _changed(before.removing_replicas, self._removing),
        )
        return None if changes == _NOTHING else PartitionChangeRecord(topic_id, index, *changes)

    def _present_isr(self) -> Replicas:
        """Return the ISR; an empty one without ELR dates from a time with ELR, when the ELR was as good as an ISR."""
        before = self._before
        if before.isr or self._rules.uses_elr:
            return before.isr
        return tuple(b for b in before.eligible_leader_replicas if self._can_serve(b))

    def _elect_among(self, electable: Replicas, preferred: bool) -> BrokerId:
        if preferred and self._replicas[0] in electable and self._can_serve(self._replicas[0]):
            return self._replicas[0]
        if self._before.leader in electable and self._can_serve(self._before.leader):
            return self._before.leader
        return next((b for b in self._replicas if b in electable and self._can_serve(b)), NO_BROKER)

    def _elect_unclean(self, election: Election) -> BrokerId:
        if not self._isr and not self._elr and len(self._last_known) == 1:
            last_known = self._last_known[0]
            if last_known in self._replicas and self._can_serve(last_known):
                return last_known
        if election is not Election.UNCLEAN:
            return NO_BROKER
        return next((b for b in self._replicas if self._can_serve(b)), NO_BROKER)

    def _can_serve(self, replica: BrokerId) -> bool:
        broker = self._brokers.get(replica)
        return broker is not None and broker.is_active and broker.has_online(self._directory_of(replica))

    def _directory_of(self, replica: BrokerId) -> DirectoryId:
        directory = self._target.directories.get(replica)
        if directory is not None:
            return directory
        if replica in self._before.replicas:
            return self._before.directories[self._before.replicas.index(replica)]
        broker = self._brokers.get(replica)
        return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory

    def _changed_directories(self) -> tuple[DirectoryId, ...] | None:
        if self._replicas is self._before.replicas and not self._target.directories:
            return None
        directories = tuple(map(self._directory_of, self._replicas))
        return _changed(tuple(map(self._before.directory_of, self._replicas)), directories)


def _changed(before: T, after: T) -> T | None:
    return None if before == after else after
