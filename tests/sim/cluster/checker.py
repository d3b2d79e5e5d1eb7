"""The invariants of a whole cluster, kept up with every event at the cost of what has changed.

The checker sees all replicas at once. Of each it keeps the batches that the log has (read back from the log, not told
by who wrote them), of each partition the *truth*: what any leader ever counted as committed. A record that is in the
truth may be lost only where the promise allows it: it "survives as long as one ISR member lives", with eligible leader
replicas as long as one of these does. So faults that take records off a disk mark the replica as damaged, and the
promise of a partition is void while all its ISR and ELR members are; or when an administrator allowed an unclean
election and no member could lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft_properties import PropertyViolatedError, require
from sim.cluster.client_checker import ClientChecker
from sim.cluster.metadata_checker import MetadataChecker
from sim.cluster.serving import Key
from sim.cluster.truth import Batch, Truth, View, batch_of, position_of

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.records import iter_headers
from tidelog_node.log import PartitionLog
from tidelog_node.replication.fetch_session import FULL_EPOCH
from tidelog_quorum.metadata.registrations import PartitionRegistration

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition
    from sim.cluster.schedule import Topology

MOST_BYTES = 1 << 30


class Checker:
    """Told of everything by the processes; raises :class:`PropertyViolatedError`."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.metadata = MetadataChecker(self)
        self.nodes: dict[int, NodeProcess] = {}
        self.views: dict[tuple[int, Key], View] = {}
        self.truths: dict[Key, Truth] = {}
        self.clients = ClientChecker(self)
        self.counts: dict[str, int] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Count what was exercised."""
        self.counts[name] = self.counts.get(name, 0) + by

    def truth(self, key: Key) -> Truth:
        """Return a partition's truth."""
        truth = self.truths.get(key)
        if truth is None:
            truth = self.truths[key] = Truth()
        return truth

    def note_answered(self, key: Key, last_offset: int) -> None:
        """A batch is acknowledged with acks=all: it must be committed by now."""
        truth = self.truth(key)
        is_committed = last_offset < truth.high_watermark or truth.was_void
        require(is_committed, "AcknowledgedBeforeCommitted", f"{key}: {last_offset}, committed {truth.high_watermark}")

    def note_fetch(self, request: pb.FetchRequest) -> None:
        """A reader polls: with all its partitions, or with what has changed of a session's."""
        if request.session.ends_wait:
            self.count("polls ended")
        else:
            self.count("full fetches" if request.session.epoch <= FULL_EPOCH else "fetches of a session")

    def note_stopped(self, node: NodeProcess) -> None:
        """A process has ended."""
        for (number, _), view in self.views.items():
            if number == node.number:
                view.is_current = False
                view.led = (-1, -1)

    def note_closed(self, node: NodeProcess, key: Key) -> None:
        """A replica is closed for a while or for good."""
        view = self.views.get((node.number, key))
        if view is not None:
            view.is_current = False
            view.led = (-1, -1)

    def note_damaged(self, number: int) -> None:
        """A machine has lost what was not synced: its replicas may lack records that they had."""
        for (node, key), view in self.views.items():
            if node == number:
                damaged = self.truth(key).damaged
                damaged.setdefault(number, view.batches[-1] if view.batches else None)
                self.evaluate(key)

    def note_recovered(self, node: NodeProcess, key: Key, log: PartitionLog) -> None:
        """A log was opened: see what it has."""
        view = self.views[node.number, key] = View()
        view.start, view.end = log.log_start_offset, log.log_start_offset
        self._read(key, view, log)
        damaged = self.truth(key).damaged
        if node.number not in damaged:
            return
        lost = damaged[node.number]
        if lost is not None and not view.has(lost):
            self.count("logs cut by a crash")
        self._mend(key, node.number, view)

    def read_again(self, number: int, key: Key, log: PartitionLog) -> View:
        """Return what a log has, read from its start, and compare it with what was seen of it."""
        view = View(start=log.log_start_offset, end=log.log_start_offset)
        self._read(key, view, log)
        seen = [b for b in self.views[number, key].batches if b.end > view.start]
        require(seen == view.batches, "LogReadable", f"{number} of {key}: {view.batches[-2:]}, seen was {seen[-2:]}")
        return view

    def evaluate(self, key: Key) -> None:
        """See whether the promise of a partition is void: all that it rests on are damaged."""
        partition = self.metadata.latest.partition(*key)
        if partition is None:
            return
        truth = self.truth(key)
        members = {*partition.isr, *partition.eligible_leader_replicas} or {*partition.last_known_elr}
        truth.is_void = members <= truth.damaged.keys()
        truth.was_void = truth.was_void or truth.is_void

    def observe(self, partition: SimulatedPartition) -> None:
        """A replica has taken a step: see what it has now, and what it does."""
        node, key, log = partition.node, partition.key, partition.log
        view = self.views[node.number, key]
        end = log.log_end_offset
        if end != view.end or log.log_start_offset != view.start:
            self._follow_log(key, view, log)
            node.world.note(node.number, key[1], end, view.start)
        truth = self.truth(key)
        leader = partition.state.leader
        high_watermark = partition.state.high_watermark
        if leader is not None:
            self._check_leader(partition, view, truth)
        else:
            view.led = (-1, -1)
            is_known = high_watermark <= truth.high_watermark or truth.was_void
            require(
                is_known, "HighWatermarkOfFollower", f"{node.number} of {key}: {high_watermark}, {truth.high_watermark}"
            )
        view.high_watermark = high_watermark
        if node.number in truth.damaged:
            self._mend(key, node.number, view)

    def check_new_isr(self, key: Key, partition: PartitionRegistration, joined: set[BrokerId]) -> None:
        """Require that replicas that join the ISR have all committed records (LeaderCandidateCompleteness).

        A replica may join because of an acknowledgement before a power loss of which the controller does not know yet.
        Such a join repairs nothing.
        """
        truth = self.truth(key)
        for broker in joined:
            view, registered = self.views.get((broker, key)), self.metadata.latest.brokers.get(broker)
            if view is not None and registered is not None:
                is_of_this_life = registered.broker_epoch == self.nodes[broker].broker_epoch
                self._mend(key, broker, view, is_forced=is_of_this_life)
            self._check_candidate(key, truth, broker, f"joins {partition}")

    def _follow_log(self, key: Key, view: View, log: PartitionLog) -> None:
        end, start = log.log_end_offset, log.log_start_offset
        while view.batches and view.batches[-1].end > end:
            view.batches.pop()
            self.count("truncated")
        has_restarted = start == end and end != view.end and not (view.batches and view.batches[-1].end == end)
        if has_restarted:
            view.batches.clear()
            view.end = end
            self.count("logs restarted")
        view.start = start
        view.end = min(view.end, end)
        if end > view.end:
            self._read(key, view, log)

    def _read(self, key: Key, view: View, log: PartitionLog) -> None:
        end = log.log_end_offset
        truth = self.truth(key)
        while view.end < end:
            data = log.read(view.end, MOST_BYTES, end)
            for _, header in iter_headers(data):
                batch = batch_of(header)
                self._check_matching(key, truth, view, batch)
                view.batches.append(batch)
                view.end = batch.end
            if not data:
                raise PropertyViolatedError("LogReadable", f"{key}: nothing at {view.end} of a log up to {end}")

    def _check_matching(self, key: Key, truth: Truth, view: View, batch: Batch) -> None:
        """LogMatching: an offset and an epoch name one batch, and one batch before it; so whole prefixes are equal."""
        history = truth.history
        before = view.batches[-1] if view.batches else None
        if before is not None:
            is_next = before.end == batch.base and before.epoch <= batch.epoch
            require(is_next, "LogMatching", f"{key}: {batch} after {before}")
        known = history.get((batch.base, batch.epoch))
        if known is None:
            history[batch.base, batch.epoch] = (batch, before)
            return
        require(known[0] == batch, "LogMatching", f"{key}: {batch}, elsewhere {known[0]}")
        if before is not None and known[1] is not None and batch.base > truth.leaders_start:
            require(known[1] == before, "LogMatching", f"{key}: {batch} after {before}, elsewhere after {known[1]}")

    def _check_leader(self, partition: SimulatedPartition, view: View, truth: Truth) -> None:
        leader, number, key = partition.state.leader, partition.node.number, partition.key
        assert leader is not None
        epoch, high_watermark = leader.leader_epoch, leader.high_watermark
        truth.leaders_start = max(truth.leaders_start, view.start)
        if view.led[0] != epoch:
            known = truth.leaders.setdefault(epoch, number)
            require(known == number, "OneLeaderPerEpoch", f"{key}: {known} and {number} lead in epoch {epoch}")
            view.led = (epoch, high_watermark if view.high_watermark is None else view.high_watermark)
            self._begin_term(key, number, view, truth, epoch)
        require(high_watermark >= view.led[1], "HighWatermarkWentBack", f"{key}: {view.led[1]} to {high_watermark}")
        if high_watermark > view.led[1]:
            view.led = (epoch, high_watermark)
            self._check_quorum(partition, view, truth)
        is_surpassed = truth.was_void and epoch < max(truth.leaders)
        if high_watermark > truth.high_watermark and not is_surpassed:
            self._extend(partition, view, truth)
        self._check_isr(partition)

    def _begin_term(self, key: Key, number: int, view: View, truth: Truth, epoch: int) -> None:
        """LeaderCompleteness: a leader has all that was committed before its term."""
        self.count("leaders")
        if epoch < max(truth.leaders):
            return
        if not truth.batches or view.has(truth.batches[-1]):
            self._mend(key, number, view, is_forced=truth.is_void)
            return
        if not truth.is_void and number not in truth.damaged:
            last = truth.batches[-1]
            raise PropertyViolatedError("LeaderCompleteness", f"{key}: {number} leads in {epoch} without {last}")
        require(truth.was_void, "LeaderCompleteness", f"{key}: {number}, which lost records, leads in {epoch}")
        self._give_up(key, number, view, truth)

    def _give_up(self, key: Key, number: int, view: View, truth: Truth) -> None:
        """Records were lost as the promise allows: from now on the truth is what the new leader has of it."""
        self.count("permitted losses")
        while truth.batches and not view.has(truth.batches[-1]):
            truth.batches.pop()
        truth.high_watermark = truth.batches[-1].end if truth.batches else min(truth.high_watermark, view.start)
        truth.sequences.clear()
        self._mend(key, number, view, is_forced=True)

    def _check_quorum(self, partition: SimulatedPartition, view: View, truth: Truth) -> None:
        """The high watermark is on enough replicas, and on all that may be elected."""
        leader, key = partition.state.leader, partition.key
        assert leader is not None
        committed = leader.high_watermark
        last = next((b for b in reversed(view.batches) if b.end <= committed), None)
        members = len(leader.isr.members)
        text = f"{key}: {committed} with the ISR {sorted(leader.isr.members)}, {leader.min_insync_replicas} needed"
        require(members >= leader.effective_min_isr, "QuorumOfMinIsr", text)
        if last is None or truth.was_void:
            return
        holders = [n for n in leader.followers if n in truth.damaged or self._holds(n, key, last)]
        enough = len(holders) + 1 >= leader.effective_min_isr
        require(enough, "QuorumOfMinIsr", f"{text}; only {holders} and the leader have it")
        registration = self.metadata.latest.partition(*key)
        if registration is not None:
            for member in registration.isr:
                is_held = member == partition.node.number or self._holds(member, key, last)
                is_held = is_held or member in truth.damaged
                require(is_held, "LeaderCandidateCompleteness", f"{text}; {member} of {registration} has not {last}")

    def _holds(self, number: int, key: Key, batch: Batch) -> bool:
        view = self.views.get((number, key))
        return view is not None and view.has(batch)

    def _extend(self, partition: SimulatedPartition, view: View, truth: Truth) -> None:
        key, committed = partition.key, partition.state.high_watermark
        if truth.batches and not view.has(truth.batches[-1]):
            require(
                truth.is_void,
                "LeaderCompleteness",
                f"{key}: {partition.node.number} commits, has not {truth.batches[-1]}",
            )
            self._give_up(key, partition.node.number, view, truth)
        position = position_of(view.batches, truth.high_watermark)
        for batch in view.batches[position:]:
            if batch.end > committed:
                break
            self.clients.check_committed(key, truth, batch)
            truth.batches.append(batch)
            self.count("committed")
        truth.high_watermark = committed
        if not truth.is_void and truth.damaged:
            for number in list(truth.damaged):
                found = self.views.get((number, key))
                if found is not None:
                    self._mend(key, number, found)

    def _check_isr(self, partition: SimulatedPartition) -> None:
        """Whatever set the controller has stored is a part of what the leader of that epoch reckons with."""
        registration = self.metadata.latest.partition(*partition.key)
        leader = partition.state.leader
        if registration is None or leader is None or registration.leader_epoch != leader.leader_epoch:
            return
        is_part = leader.isr.maximal.issuperset(registration.isr)
        require(is_part, "MaximalIsr", f"{partition.key}: {registration}, the leader has {leader.isr}")

    def _check_candidate(self, key: Key, truth: Truth, broker: BrokerId, why: str) -> None:
        if truth.was_void or broker in truth.damaged or not truth.batches:
            return
        has = self._holds(broker, key, truth.batches[-1])
        require(has, "LeaderCandidateCompleteness", f"{key}: {broker} {why} without {truth.batches[-1]}")

    def _mend(self, key: Key, number: int, view: View, *, is_forced: bool = False) -> None:
        """A replica that has all that it had, or joins the ISR anew, is as good as one that never lost anything."""
        truth = self.truth(key)
        if number not in truth.damaged or not view.is_current or (truth.batches and not view.has(truth.batches[-1])):
            return
        lost = truth.damaged[number]
        if is_forced or lost is None or view.has(lost):
            del truth.damaged[number]
            self.evaluate(key)
