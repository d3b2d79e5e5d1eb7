"""Rack-aware, even placement of the replicas of new partitions (after Kafka's StripedReplicaPlacer).

Rules, in order of precedence:

- no broker has two replicas of a partition, and a broker that shuts down or is cordoned (KIP-1066) gets none;
- the first replica, the preferred leader, is on a broker that is not fenced;
- the replicas of a partition are spread as evenly as possible over as many racks as possible;
- a fenced broker gets a replica only when its rack, or every rack, has no other broker left;
- racks get replicas in proportion to their brokers, and within a rack the brokers with the fewest of the topic;
- ties go to the broker with the fewest of all topics, so that many small topics are spread as well.

If no broker is fenced, shutting down or cordoned, and all racks have the same number of brokers or there are no racks,
then within a topic no broker holds more than one replica more than another, and none leads more than one partition more
than another. Partitions added to such a topic keep its replicas as even; its leaders, of which existing ones stay, may
come to differ by two.

Nothing is random: the same image gives the same placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_quorum.metadata.cordons import cordoned_among
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import BrokerRegistration

Replicas = tuple[BrokerId, ...]


class ClusterLoad:
    """The number of replicas and preferred leaderships of each broker over all topics; a cache derived from the image.

    The controller keeps it between requests. :meth:`follow` counts only the changed topics, and compares each of the
    others by identity.
    """

    def __init__(self) -> None:
        self.replicas: Counter[BrokerId] = Counter()
        self.leaders: Counter[BrokerId] = Counter()
        self._topics: dict[str, TopicImage] = {}
        self._seen: Mapping[str, TopicImage] = {}

    def follow(self, image: MetadataImage) -> None:
        """Update the counts to an image, later or earlier than the last one."""
        if image.topics is self._seen:
            return
        for name, topic in self._topics.items():
            if image.topics.get(name) is not topic:
                self._count(topic, -1)
        for name, topic in image.topics.items():
            if self._topics.get(name) is not topic:
                self._count(topic, 1)
        self._topics = dict(image.topics)
        self._seen = image.topics

    def copy(self) -> ClusterLoad:
        """Return a copy, to which a request adds the partitions that it creates."""
        twin = ClusterLoad()
        twin.replicas, twin.leaders = self.replicas.copy(), self.leaders.copy()
        return twin

    def add(self, placements: Sequence[Replicas]) -> None:
        """Count partitions that are not in the image yet."""
        for replicas in placements:
            self.replicas.update(replicas)
            self.leaders[replicas[0]] += 1

    def _count(self, topic: TopicImage, sign: int) -> None:
        for partition in topic.partitions.values():
            for replica in partition.replicas:
                self.replicas[replica] += sign
            # The preferred leader: the current one depends on which brokers are up.
            self.leaders[partition.replicas[0]] += sign


def place_replicas(
    image: MetadataImage,
    num_partitions: int,
    replication_factor: int,
    existing: Sequence[Replicas] = (),
    load: ClusterLoad | None = None,
) -> list[Replicas]:
    """Return the replicas of each new partition, the preferred leader first.

    ``existing`` are those of the topic's existing partitions; ``load`` is that of all topics, counted if not given.

    Raises:
        TidelogError: INVALID_REPLICATION_FACTOR, fewer brokers than the requested replicas are registered and not
            cordoned, or all of them are fenced.
    """
    cordoned = frozenset(cordoned_among(image, image.brokers))
    usable = {
        b.broker_id: b for b in image.brokers.values() if not b.in_controlled_shutdown and b.broker_id not in cordoned
    }
    besides = f" and not cordoned ({', '.join(map(str, sorted(cordoned)))})" if cordoned else ""
    if replication_factor > len(usable):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered{besides}.",
        )
    if all(b.fenced for b in usable.values()):
        text = (
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced"
            f"{' or cordoned' if cordoned else ''}."
        )
        raise error_for(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if load is None:
        load = ClusterLoad()
        load.follow(image)
    placer = _Placer(usable, load, existing)
    added = [placer.place(replication_factor) for _ in range(num_partitions)]
    return _LeaderBalance(added, existing, [b for b in sorted(usable) if not usable[b].fenced]).balanced()


class _Placer:
    """A greedy placer: each replica goes to the least loaded broker. Used for one topic."""

    def __init__(
        self, usable: Mapping[BrokerId, BrokerRegistration], load: ClusterLoad, existing: Sequence[Replicas]
    ) -> None:
        self._brokers = usable
        self._load = load
        sizes = Counter(b.rack for b in usable.values())
        unfenced = Counter(b.rack for b in usable.values() if not b.fenced)
        self._rack_sizes = {rack: unfenced[rack] or size for rack, size in sizes.items()}
        self._rack_load: Counter[str] = Counter()
        self._replicas: Counter[BrokerId] = Counter()
        self._leaders: Counter[BrokerId] = Counter()
        for replicas in existing:
            self._note(replicas)

    def place(self, replication_factor: int) -> Replicas:
        chosen: list[BrokerId] = []
        used_racks: Counter[str] = Counter()
        for _ in range(replication_factor):
            # One of them must be able to lead: the first.
            open_to = [b for b, r in self._brokers.items() if b not in chosen and (chosen or not r.fenced)]
            broker_id = min(open_to, key=lambda b: self._replica_cost(b, used_racks))
            chosen.append(broker_id)
            used_racks[self._brokers[broker_id].rack] += 1
        leader = min((b for b in chosen if not self._brokers[b].fenced), key=self._leader_cost)
        placed = (leader, *(b for b in chosen if b != leader))
        self._note(placed)
        return placed

    def _replica_cost(self, broker_id: BrokerId, used_racks: Mapping[str, int]) -> tuple[float, ...]:
        broker = self._brokers[broker_id]
        return (
            used_racks.get(broker.rack, 0),
            broker.fenced,
            self._rack_load[broker.rack] / self._rack_sizes[broker.rack],
            self._replicas[broker_id],
            self._leaders[broker_id],
            self._load.replicas[broker_id],
            broker_id,
        )

    def _leader_cost(self, broker_id: BrokerId) -> tuple[int, ...]:
        return (self._leaders[broker_id], self._load.leaders[broker_id], broker_id)

    def _note(self, replicas: Replicas) -> None:
        self._leaders[replicas[0]] += 1
        self._replicas.update(replicas)
        self._rack_load.update(self._brokers[b].rack for b in replicas if b in self._brokers)


class _LeaderBalance:
    """Passes leaderships along chains of shared partitions until no chain ends at a broker that leads two fewer.

    When no such chain is left, the leaderships are as even as the replicas allow (Harvey et al., "Semi-matchings for
    bipartite graphs and load balancing", 2006). Only new partitions change, and only to brokers of ``may_lead``.
    """

    def __init__(self, added: list[Replicas], existing: Sequence[Replicas], may_lead: Sequence[BrokerId]) -> None:
        self._added = added
        self._may_lead = may_lead
        self._leaders = Counter(p[0] for p in (*existing, *added))

    def balanced(self) -> list[Replicas]:
        while path := self._improvement():
            for index, heir in path:
                replicas = self._added[index]
                self._leaders[replicas[0]] -= 1
                self._leaders[heir] += 1
                self._added[index] = (heir, *(b for b in replicas if b != heir))
        return self._added

    def _improvement(self) -> list[tuple[int, BrokerId]]:
        for end in sorted(self._may_lead, key=lambda b: self._leaders[b]):
            starts = {b for b in self._may_lead if self._leaders[b] >= self._leaders[end] + 2}
            if starts and (path := self._path(starts, end)):
                return path
        return []

    def _path(self, starts: set[BrokerId], end: BrokerId) -> list[tuple[int, BrokerId]]:
        """Return the shortest chain of (partition, new leader) that moves one leadership from ``starts`` to ``end``."""
        came_by: dict[BrokerId, tuple[int, BrokerId]] = {}
        heirs = set(self._may_lead)
        reached, seen = set(starts), set(starts)
        while reached and end not in seen:
            steps = [(i, p[0], b) for i, p in enumerate(self._added) if p[0] in reached for b in p[1:] if b in heirs]
            reached = set()
            for index, leader, heir in steps:
                if heir not in seen:
                    seen.add(heir)
                    reached.add(heir)
                    came_by[heir] = (index, leader)
        path: list[tuple[int, BrokerId]] = []
        while end in came_by:
            index, leader = came_by[end]
            path.append((index, end))
            end = leader
        return path
