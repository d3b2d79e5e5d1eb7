"""The surroundings of a replica in the simulation of a partition: a log in memory, and a model of the controller."""

from dataclasses import dataclass, field

from tidelog_foundation.errors import ErrorCode
from tidelog_node.replication import EpochEnd, PartitionState
from tidelog_node.replication.commands import StartFetching
from tidelog_node.replication.events import IsrChangeAccepted, IsrChangeRefused

NODES = (1, 2, 3)


class MemoryLog:
    """Records as (epoch, value), and the epoch cache. The first ``synced`` records survive a power failure."""

    def __init__(self):
        self.records = []
        self.epochs = []
        self.synced = 0

    @property
    def end(self):
        return len(self.records)

    @property
    def latest_epoch(self):
        return self.epochs[-1][0] if self.epochs else -1

    def append(self, records):
        for epoch, value in records:
            self.assign_epoch_start(epoch, self.end)
            self.records.append((epoch, value))

    def assign_epoch_start(self, epoch, offset):
        if epoch > self.latest_epoch:
            self.epochs = [(e, s) for e, s in self.epochs if s < offset]
            self.epochs.append((epoch, offset))

    def end_offset_for_epoch(self, epoch):
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, self.end)
        known = [e for e, _ in self.epochs if e <= epoch]
        later = [s for e, s in self.epochs if e > epoch]
        return EpochEnd(known[-1] if known else epoch, later[0]) if later else None

    def truncate_to(self, offset):
        del self.records[offset:]
        self.epochs = [(e, s) for e, s in self.epochs if s < offset]
        self.synced = min(self.synced, offset)

    def lose_unsynced(self):
        self.truncate_to(self.synced)


@dataclass
class Node:
    node_id: int
    log: MemoryLog = field(default_factory=MemoryLog)
    state: PartitionState = None
    broker_epoch: int = -1
    alive: bool = False
    checkpoint: int = 0
    fetching: StartFetching | None = None
    fetch_in_flight: int | None = None
    metadata_index: int = -1
    waiting: list = field(default_factory=list)


class Controller:
    """A model of the controller: compare-and-set of the ISR, fencing, elections from the ISR only."""

    def __init__(self, broker_epochs):
        self.epochs = broker_epochs
        self.unfenced = set(NODES)
        self.isr, self.leader, self.leader_epoch, self.partition_epoch = frozenset(NODES), 1, 0, 0
        self.history = []
        self.publish()

    def publish(self):
        eligible = {b: self.epochs[b] for b in self.unfenced}
        self.history.append(
            (self.isr, self.leader, self.leader_epoch, self.partition_epoch, eligible, dict(self.epochs))
        )

    def change(self, isr, leader):
        if leader != self.leader:
            self.leader_epoch += 1
        self.isr, self.leader = isr, leader
        self.partition_epoch += 1

    def fence(self, broker, rng):
        self.unfenced.discard(broker)
        isr = self.isr - {broker} or self.isr
        candidates = sorted(isr & self.unfenced)
        leader = self.leader
        if leader == broker:
            leader = rng.choice(candidates) if candidates else -1
        if (isr, leader) != (self.isr, self.leader):
            self.change(isr, leader)
        self.publish()

    def unfence(self, broker, broker_epoch):
        self.epochs[broker] = broker_epoch
        self.unfenced.add(broker)
        if self.leader == -1 and broker in self.isr:
            self.change(self.isr, broker)
        self.publish()

    def move_leader(self, rng):
        candidates = sorted((self.isr & self.unfenced) - {self.leader})
        if candidates:
            self.change(self.isr, rng.choice(candidates))
            self.publish()

    def alter_partition(self, sender, request):
        if self.leader != sender or request.leader_epoch != self.leader_epoch:
            return IsrChangeRefused(request.proposal_id, ErrorCode.FENCED_LEADER_EPOCH)
        if request.partition_epoch != self.partition_epoch:
            return IsrChangeRefused(request.proposal_id, ErrorCode.INVALID_UPDATE_VERSION)
        for broker, epoch in request.isr:
            if broker not in self.unfenced or epoch not in (-1, self.epochs[broker]):
                return IsrChangeRefused(request.proposal_id, ErrorCode.INELIGIBLE_REPLICA)
        self.change(frozenset(b for b, _ in request.isr), self.leader)
        self.publish()
        return IsrChangeAccepted(request.proposal_id, self.leader_epoch, self.partition_epoch, self.isr)
