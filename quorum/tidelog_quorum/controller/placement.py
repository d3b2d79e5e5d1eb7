"""Where the replicas of new partitions go: rack-aware, evenly over the brokers (after Kafka's StripedReplicaPlacer).

Rules, the first that decides counts:

- no broker has two replicas of a partition, and a broker that shuts down gets none;
- the first replica, which is to lead, is on a broker that is not fenced;
- the replicas of a partition are spread over as many racks as there are, and as evenly as they can be;
- a fenced broker gets a replica only when its rack has no other one left, or no rack has;
- racks get replicas in proportion to their brokers, and within a rack the brokers that have least of the topic;
- ties go to the broker that has least of all topics, so that many small topics are spread as well.

Within a topic no broker then holds more than one replica more than another and none leads more than one partition more
than another where no broker is fenced or shutting down and all racks have the same number of brokers, or there are no
racks. Partitions that are added to such a topic keep its replicas as even; its leaders, of which those that are there
stay, may come to differ by two.

Nothing is drawn at random: the same image gives the same placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import BrokerRegistration

Replicas = tuple[BrokerId, ...]


class ClusterLoad:
    """How many replicas and preferred leaderships each broker has of all topics; a cache of what the image says.

    Kept by the controller from one request to the next: the cost of :meth:`follow` is that of the topics that changed,
    and a look at each of the others.
    """

    def __init__(self) -> None:
        self.replicas: Counter[BrokerId] = Counter()
        self.leaders: Counter[BrokerId] = Counter()
        self._topics: dict[str, TopicImage] = {}
        self._seen: Mapping[str, TopicImage] = {}

    def follow(self, image: MetadataImage) -> None:
        """Take over an image, later or earlier than the last one."""
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
        """Return a load of its own, to add to what a request creates."""
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
            # The preferred leader: who leads at the moment depends on who is up.
            self.leaders[partition.replicas[0]] += sign


def place_replicas(
    image: MetadataImage,
    num_partitions: int,
    replication_factor: int,
    existing: Sequence[Replicas] = (),
    load: ClusterLoad | None = None,
) -> list[Replicas]:
    """Return the replicas of each new partition, the preferred leader first.

    ``existing`` are those of the partitions that the topic has; ``load`` is that of all topics, counted when not given.

    Raises:
        TidelogError: INVALID_REPLICATION_FACTOR when fewer brokers are registered than replicas are wanted, or all
            of them are fenced.
    """
    usable = {b.broker_id: b for b in image.brokers.values() if not b.in_controlled_shutdown}
    if replication_factor > len(usable):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered.",
        )
    if all(b.fenced for b in usable.values()):
        text = f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced."
        raise error_for(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if load is None:
        load = ClusterLoad()
        load.follow(image)
    placer = _Placer(usable, load, existing)
    added = [placer.place(replication_factor) for _ in range(num_partitions)]
    return _LeaderBalance(added, existing, [b for b in sorted(usable) if not usable[b].fenced]).balanced()


class _Placer:
    """Greedy: each replica goes where least is so far. Used for one topic and dropped."""

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
    """Passes leaderships on along chains of shared partitions until no chain ends at a broker that leads two fewer.

    When no such chain is left the leaderships are as even as the replicas allow (Harvey et al., "Semi-matchings for
    bipartite graphs and load balancing", 2006). Only new partitions are changed, and only to brokers of ``may_lead``.
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
        """Return the shortest chain of (partition, heir): one of ``starts`` then leads one less, ``end`` one more."""
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
