"""The schedule of a simulated cluster: an explicit list of actions, drawn from a seed (swarm testing).

Each seed draws its own mix: the faults and their frequency, the numbers of controllers and nodes, topics and their
settings, clients, and the errors of clocks. An action's effect follows from its own numbers and from the cluster at
that moment, so a list without some actions replays as exactly as the whole.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog_foundation.config import TopicConfig
from tidelog_quorum.raft.core.config import RaftConfig

NODE, CONTROLLER, LEADER, ACTIVE = 0, 1, 2, 3
"""Kinds of targets: a node or a controller by its place, the leader of a partition, the leading controller."""
_KINDS = {NODE: "node", CONTROLLER: "controller", LEADER: "leader of partition", ACTIVE: "active controller"}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that happens at ``at_ms``; what the numbers mean depends on the name, see :class:`nemesis.Nemesis`."""

    number: int
    at_ms: int
    name: str
    kind: int = NODE
    target: int = 0
    span_ms: int = 0
    amount: int = 0
    extra: int = 0

    def __str__(self) -> str:
        numbers = {"span": f"{self.span_ms} ms" if self.span_ms else "", "amount": self.amount, "extra": self.extra}
        details = "".join(f", {name} {value}" for name, value in numbers.items() if value)
        return f"#{self.number} at {self.at_ms} ms: {self.name} {_KINDS[self.kind]} {self.target}{details}"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to create: its settings as text."""

    name: str
    partitions: int
    replicas: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """One seed's cluster. Times in milliseconds."""

    controllers: int
    nodes: int
    topics: tuple[TopicPlan, ...]
    raft: RaftConfig
    uses_elr: bool
    min_isr: int
    session_ms: int
    heartbeat_ms: int
    max_lag_ms: int
    fetch_wait_ms: int
    fetch_bytes: int
    fetch_sessions: int
    apply_ms: int
    checkpoint_ms: int
    housekeeping_ms: int
    producers: int
    batches: int
    every_ms: int
    max_in_flight: int
    message_timeout_ms: int
    has_unsafe_producer: bool
    consumers: int
    from_replicas: bool
    is_gentle: bool
    """True if disks lose nothing that would void a guarantee."""
    clocks: tuple[tuple[int, int], ...]

    @property
    def coordinates(self) -> bool:
        """True if nodes coordinate groups and transactions: the internal topics are there."""
        return any(topic.name.startswith("__") for topic in self.topics)

    def topic_config(self) -> TopicConfig:
        """Return the settings of topics that do not say, the same on every process."""
        return TopicConfig(min_insync_replicas=self.min_isr)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One seed's cluster and all that happens to it before it is healed at ``end_ms``."""

    seed: int
    topology: Topology
    end_ms: int
    actions: tuple[Action, ...]

    def only(self, numbers: frozenset[int]) -> Schedule:
        """Return the same with some of the actions alone."""
        return dataclasses.replace(self, actions=tuple(a for a in self.actions if a.number in numbers))


def draw_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = random.Random(seed)
    end_ms = rng.choice([1_000, 2_000, 3_000])
    topology = _draw_topology(rng)
    drawn = sorted(_draw_actions(rng, end_ms), key=lambda action: action.at_ms)
    actions = tuple(dataclasses.replace(action, number=i) for i, action in enumerate(drawn))
    return Schedule(seed, topology, end_ms, actions)


def _draw_topology(rng: random.Random) -> Topology:
    nodes = rng.choice([3, 3, 3, 4, 5])
    session_ms = rng.choice([250, 400, 600])
    uses_elr = rng.random() < 0.5
    min_isr = rng.choice([1, 2, 2, 2, 3])
    return Topology(
        controllers=rng.choice([3, 3, 3, 3, 4, 5]),
        nodes=nodes,
        topics=tuple(_draw_topic(rng, i, nodes, uses_elr) for i in range(rng.choice([1, 1, 2]))),
        raft=RaftConfig(
            election_timeout_ms=120, heartbeat_interval_ms=50, max_trailing_entries=rng.choice([0, 5, 1_000])
        ),
        uses_elr=uses_elr,
        min_isr=min_isr,
        session_ms=session_ms,
        heartbeat_ms=session_ms // rng.choice([3, 5]),
        max_lag_ms=rng.choice([120, 200, 400]),
        fetch_wait_ms=rng.choice([60, 100]),
        fetch_bytes=rng.choice([1, 200, 10_000]),
        fetch_sessions=rng.choice([0, 2, 1_000, 1_000, 1_000]),
        apply_ms=rng.choice([0, 0, 5, 40]),
        checkpoint_ms=rng.choice([100, 300]),
        housekeeping_ms=rng.choice([50, 150]),
        producers=rng.choice([1, 1, 2]),
        batches=rng.choice([40, 80, 140]),
        every_ms=rng.choice([6, 12]),
        max_in_flight=rng.choice([1, 2, 5]),
        message_timeout_ms=rng.choice([500, 60_000, 60_000]),
        has_unsafe_producer=rng.random() < 0.3,
        consumers=rng.choice([1, 1, 2]),
        from_replicas=rng.random() < 0.4,
        is_gentle=rng.random() < 0.7,
        clocks=tuple((rng.choice([0, 7, 5_000]), rng.choice([1000, 1000, 980, 1020])) for _ in range(24)),
    )


def _draw_topic(rng: random.Random, number: int, nodes: int, uses_elr: bool) -> TopicPlan:
    replicas = min(nodes, rng.choice([2, 3, 3, 3, 4]))
    configs = {"segment.bytes": rng.choice(["250", "1000", "1000000"]), "file.delete.delay.ms": "50"}
    if rng.random() < 0.3:
        configs["min.insync.replicas"] = str(rng.choice([1, 2, 2]))
    if rng.random() < 0.1:
        configs["unclean.leader.election.enable"] = "true"
    flush = rng.choice(["", "", "", "messages", "ms"])
    if flush == "messages":
        configs["flush.messages"] = "1"
    if flush == "ms":
        configs["flush.ms"] = "100"
    if rng.random() < 0.15:
        configs["retention.bytes"] = "800"
    return TopicPlan(f"t{number}", rng.choice([1, 1, 2]), replicas, tuple(sorted(configs.items())))


def _draw_actions(rng: random.Random, end_ms: int) -> Iterator[Action]:
    names = list(ACTIONS)
    weights = [rng.choice([0, 0, 1, 2, 6]) for _ in names]
    if any(weights):
        for name in rng.choices(names, weights, k=rng.choice([3, 10, 18, 30])):
            yield ACTIONS[name](rng, rng.randrange(end_ms))


def _someone(rng: random.Random) -> tuple[int, int]:
    kind = rng.choice([NODE, NODE, NODE, LEADER, LEADER, CONTROLLER, ACTIVE])
    return kind, rng.randrange(5)


def _some_node(rng: random.Random) -> tuple[int, int]:
    return rng.choice([NODE, LEADER]), rng.randrange(5)


def _kill(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "kill", *_someone(rng), rng.choice([1, 30, 150, 700]), rng.randrange(4))


def _power(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "power", *_some_node(rng), rng.choice([1, 30, 150, 700]), rng.randrange(1 << 16))


def _blackout(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "blackout", NODE, 0, rng.choice([5, 100]), rng.randrange(1 << 16))


def _crash_at(rng: random.Random, at_ms: int) -> Action:
    return Action(
        0, at_ms, "crash_at", *_some_node(rng), rng.choice([1, 30, 300]), rng.randrange(1 << 16), rng.randrange(60)
    )


def _bounce(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "bounce", *_some_node(rng), rng.choice([1, 60, 400]))


def _pause(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "pause", *_someone(rng), rng.choice([20, 150, 400, 900]))


def _cut(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "cut", *_someone(rng), rng.choice([60, 250, 700]), rng.randrange(1, 9), rng.randrange(2))


def _isolate(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "isolate", *_someone(rng), rng.choice([60, 250, 700]), rng.randrange(4))


def _overtake(rng: random.Random, at_ms: int) -> Action:
    return Action(
        0, at_ms, "overtake", LEADER, rng.randrange(5), rng.choice([150, 300, 600]), rng.randrange(4), rng.randrange(30)
    )


def _split(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "split", NODE, 0, rng.choice([60, 250, 700]), rng.randrange(1 << 12))


def _noise(rng: random.Random, at_ms: int) -> Action:
    loss, slow, double = (rng.choice([0, 0, 5, 20]) for _ in range(3))
    late_ms = rng.choice([5, 20, 120])
    amount = loss | slow << 8 | double << 16
    return Action(0, at_ms, "noise", *_someone(rng), rng.choice([100, 400, 900]), amount, late_ms)


def _stall(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "stall", CONTROLLER, rng.randrange(5), rng.choice([20, 100, 300]))


def _clock(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "clock", *_someone(rng), 0, rng.choice([30, 150, 1_000]))


def _snapshot(rng: random.Random, at_ms: int) -> Action:
    return Action(
        0, at_ms, "snapshot", *rng.choice([(CONTROLLER, 0), (CONTROLLER, 1), (ACTIVE, 0)]), rng.choice([0, 10])
    )


def _disk_error(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "disk_error", *_some_node(rng), 0, rng.randrange(3))


def _disk_full(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "disk_full", *_some_node(rng), rng.choice([100, 500]), rng.choice([0, 0, 100, 1_000]))


def _reassign(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "reassign", LEADER, rng.randrange(5), 0, rng.randrange(1 << 16))


def _prefer(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "prefer", LEADER, rng.randrange(5))


def _unclean(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "unclean", LEADER, rng.randrange(5))


def _min_isr(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "min_isr", LEADER, rng.randrange(5), 0, rng.choice([1, 2, 3]))


def _delete(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "delete", LEADER, rng.randrange(5), 0, rng.choice([-1, 1, 2, 4]))


ACTIONS = {
    "kill": _kill,
    "power": _power,
    "blackout": _blackout,
    "crash_at": _crash_at,
    "bounce": _bounce,
    "pause": _pause,
    "cut": _cut,
    "isolate": _isolate,
    "overtake": _overtake,
    "split": _split,
    "noise": _noise,
    "stall": _stall,
    "clock": _clock,
    "snapshot": _snapshot,
    "disk_error": _disk_error,
    "disk_full": _disk_full,
    "reassign": _reassign,
    "prefer": _prefer,
    "unclean": _unclean,
    "min_isr": _min_isr,
    "delete": _delete,
}
