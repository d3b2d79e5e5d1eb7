"""The committed metadata log of a simulated cluster: equal for all, and by the controller's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft_properties import require
from sim.cluster.serving import Key

from tidelog_foundation.ids import NO_BROKER
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tidelog_quorum.metadata.registrations import PartitionRegistration
from tidelog_quorum.metadata.topic_config import min_insync_replicas, unclean_leader_election_enable

if TYPE_CHECKING:
    from sim.cluster.checker import Checker


class MetadataChecker:
    """The committed metadata log: equal for all, and by the controller's rules."""

    def __init__(self, checker: Checker) -> None:
        self.images: dict[int, MetadataImage] = {0: MetadataImage()}
        self.latest = MetadataImage()
        self.asked_unclean: set[Key] = set()
        self._payloads: dict[int, tuple[int, bytes]] = {}
        self._answered: dict[int, int] = {}
        self._checker = checker

    def note_committed(self, index: int, term: int, payload: bytes) -> None:
        """A controller applies an entry."""
        known = self._payloads.setdefault(index, (term, payload))
        require(known == (term, payload), "MetadataLogMatching", f"entry {index}: {known} and {(term, payload)!r}")
        if index <= self.latest.offset:
            return
        require(index == max(self.images) + 1, "MetadataLogMatching", f"entry {index} after {self.latest.offset}")
        before = self.latest
        records = list(decode_batch(payload))
        self.latest = self.images[index] = before.apply(index, term, records)
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                self._check_change(before, record)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced is False:
                self._check_unfenced(record)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.in_controlled_shutdown:
                self._check_handover(before, record)

    def _check_handover(self, before: MetadataImage, record: BrokerRegistrationChangeRecord) -> None:
        """A node that may wait hands over only what others can take, or what nobody is about to be able to take."""
        node = self._checker.nodes[record.broker_id]
        if not node.is_up or node.broker_epoch != record.broker_epoch:
            return
        self._checker.count("handovers")
        if node.standing.waits_no_more:
            self._checker.count("handovers after a wait")
            return
        for topic, index, partition in before.partitions():
            if record.broker_id in partition.isr:
                self._check_spared(before, topic.name, index, partition, record)

    def _check_spared(
        self,
        before: MetadataImage,
        topic: str,
        index: int,
        partition: PartitionRegistration,
        record: BrokerRegistrationChangeRecord,
    ) -> None:
        live = {r for r in partition.replicas if (broker := before.brokers.get(r)) is not None and broker.is_active}
        others = live.intersection(partition.isr) - {record.broker_id}
        catching_up = live.difference(partition.isr)
        needed = min(len(partition.replicas), min_insync_replicas(before, topic, self._checker.topology.topic_config()))
        falls_below = len(others) + 1 == needed < len(partition.replicas)
        is_spared = not catching_up or (others and not falls_below)
        text = f"{topic}-{index}: {partition} before {record}, {catching_up} could take its place"
        require(bool(is_spared), "HandoverWaits", text)

    def _check_unfenced(self, record: BrokerRegistrationChangeRecord) -> None:
        """A broker may lead once it has applied its registration and answers clients (KIP-631)."""
        node = self._checker.nodes[record.broker_id]
        if node.is_up and node.broker_epoch == record.broker_epoch:
            is_ready = node.is_serving and node.replicas.applied.offset >= record.broker_epoch
            text = f"{record} of a node that has applied {node.replicas.applied.offset}, serving {node.is_serving}"
            require(is_ready, "UnfencedWhenServing", text)

    def check_handled(self, epoch: int, offset: int) -> None:
        """A controller handles a request in an epoch, on an image: it knows all that its predecessors answered."""
        answered = max((o for e, o in self._answered.items() if e < epoch), default=0)
        require(offset >= answered, "PredecessorsKnown", f"epoch {epoch} handles at {offset}, {answered} was answered")

    def check_answered(self, epoch: int, offset: int) -> None:
        """A request is answered: what it saw and wrote, up to an offset, is committed as the controller wrote it."""
        image = self.images.get(offset)
        is_committed = image is not None and image.epoch <= epoch
        require(
            is_committed, "AnswerCommitted", f"epoch {epoch} answers at {offset}, {self.latest.offset} is committed"
        )
        self._answered[epoch] = max(self._answered.get(epoch, 0), offset)

    def _check_change(self, before: MetadataImage, record: PartitionChangeRecord) -> None:
        topic = before.topic_by_id(record.topic_id)
        now = None if topic is None else self.latest.topic_by_id(record.topic_id)
        if topic is None or now is None:
            return
        key = topic.name, record.partition_id
        old, new = topic.partitions[key[1]], now.partitions[key[1]]
        checker = self._checker
        is_moved = old.leader != new.leader
        if is_moved:
            checker.count("elections")
            text = f"{key}: {old} becomes {new}"
            require(new.leader_epoch > old.leader_epoch, "LeaderEpochBumped", text)
            require(new.leader == NO_BROKER or new.leader in new.isr, "LeaderInIsr", text)
            is_able = new.leader == NO_BROKER or self.latest.can_serve(new, new.leader)
            require(is_able, "LeaderCanServe", text)
        led_on = self.latest.brokers.get(old.leader)
        # A reassignment that is taken back may do with whom it had before, which is an unclean election.
        is_taken_back = bool(set(old.replicas) - set(new.replicas) - set(old.removing_replicas))
        is_completed = old.is_reassigning and not new.is_reassigning and not is_taken_back
        is_completed = is_completed and led_on is not None and led_on.is_active
        is_stranger = new.leader != NO_BROKER and new.leader not in (*old.isr, *old.eligible_leader_replicas)
        if is_moved and is_stranger and not is_completed:
            self._check_unclean(key, old, new)
        # A cancellation that may lose records names an original replica, a fenced one if no other is left.
        is_allowed = unclean_leader_election_enable(self.latest, key[0], checker.topology.topic_config())
        is_unclean = is_taken_back and is_allowed and not any(self.latest.can_serve(new, b) for b in new.replicas)
        joined = set(new.isr).difference(old.isr, old.eligible_leader_replicas)
        for member in joined:
            broker = self.latest.brokers.get(member)
            is_active = broker is not None and broker.is_active
            require(is_active or not old.isr or is_unclean, "IsrOfActive", f"{key}: {member} joins {new}, is {broker}")
        checker.evaluate(key)
        if joined:
            checker.check_new_isr(key, new, joined)

    def _check_unclean(self, key: Key, old: PartitionRegistration, new: PartitionRegistration) -> None:
        """Only where it is allowed, or is the last known leader's (KIP-966), and nobody better could lead."""
        image, checker = self.latest, self._checker
        members = [b for b in (*old.isr, *old.eligible_leader_replicas) if b in new.replicas]
        able = [b for b in members if image.can_serve(new, b)]
        text = f"{key}: {old} becomes {new}, {able} could lead"
        require(not able, "ElectedOutsideIsr", text)
        is_allowed = unclean_leader_election_enable(image, key[0], checker.topology.topic_config())
        is_last_known = not old.isr and new.leader in old.last_known_elr
        require(is_allowed or is_last_known or key in self.asked_unclean, "ElectedOutsideIsr", text)
        checker.count("unclean elections")
        checker.truth(key).damaged.setdefault(new.leader, None)

    def min_insync(self, topic: str) -> int:
        """Return a topic's min.insync.replicas by the latest image."""
        return min_insync_replicas(self.latest, topic, self._checker.topology.topic_config())
