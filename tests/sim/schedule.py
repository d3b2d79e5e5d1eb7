"""The schedule of a simulated quorum: an explicit list of actions, drawn from a seed.

Each seed draws its own mix (swarm testing): the faults and their frequency, the numbers of voters and observers, the
errors of their clocks, the limits in the configuration. An action's effect follows from its own numbers and from the
cluster at that moment, never from a shared random generator. A list without some actions therefore replays as exactly
as the whole, as the minimization of a failure requires.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog_quorum.raft.core.config import RaftConfig

LEADER = -1
"""A target: the leader of the latest term."""
STALE_LEADER = -2
"""A target: the replica that considers itself leader in the oldest term."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that happens at ``at_ms``; what the numbers mean depends on the name, see :class:`nemesis.Nemesis`."""

    number: int
    at_ms: int
    name: str
    target: int = 0
    span_ms: int = 0
    amount: int = 0
    extra: int = 0

    def __str__(self) -> str:
        who = {LEADER: "leader", STALE_LEADER: "stale leader"}.get(self.target, f"replica {self.target}")
        numbers = {"span": f"{self.span_ms} ms" if self.span_ms else "", "amount": self.amount, "extra": self.extra}
        details = "".join(f", {name} {value}" for name, value in numbers.items() if value)
        return f"#{self.number} at {self.at_ms} ms: {self.name} {who}{details}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """One seed's cluster and all that happens to it before it is healed at ``end_ms``.

    ``clocks`` are pairs of (offset in ms, speed per mille) by replica; ``is_ordered`` keeps each link's messages in
    order
    outside of noise; ``deaf`` has one voter hear nothing for a while: ``early``, from when the others are
    healed; ``late``, when all are level; ``late to leader``, then and of the leader alone.
    """

    seed: int
    voters: int
    observers: int
    config: RaftConfig
    chunk_bytes: int
    end_ms: int
    clocks: tuple[tuple[int, int], ...]
    known_directories: bool
    is_ordered: bool
    deaf: str
    actions: tuple[Action, ...]

    def only(self, numbers: frozenset[int]) -> Schedule:
        """Return the same with some of the actions alone."""
        return dataclasses.replace(self, actions=tuple(a for a in self.actions if a.number in numbers))


def draw_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = random.Random(seed)
    end_ms = rng.choice([800, 1200, 2000])
    voters = rng.choice([1, 2, 3, 3, 3, 3, 5, 5])
    drawn = [*_draw_load(rng, end_ms), *_draw_faults(rng, end_ms), *_draw_moves(random.Random(~seed), end_ms)]
    drawn.sort(key=lambda action: action.at_ms)
    return Schedule(
        seed=seed,
        voters=voters,
        observers=rng.choice([0, 0, 1, 2]),
        config=_draw_config(rng),
        chunk_bytes=rng.choice([8, 24, 60]),
        end_ms=end_ms,
        clocks=tuple((rng.choice([0, 7, 5_000]), rng.choice([1000, 1000, 950, 1050])) for _ in range(8)),
        known_directories=rng.random() < 0.5,
        is_ordered=rng.random() < 0.5,
        deaf=rng.choice(["", "", "", "early", "late", "late to leader"]),
        actions=tuple(dataclasses.replace(action, number=i) for i, action in enumerate(drawn)),
    )


def _draw_config(rng: random.Random) -> RaftConfig:
    values = {
        "election_timeout_ms": 100,
        "heartbeat_interval_ms": rng.choice([20, 40]),
        "max_append_bytes": rng.choice([6, 20, 200]),
        "max_inflight_appends": rng.choice([1, 3, 8]),
        "max_inflight_bytes": rng.choice([20, 100, 1_000]),
        "max_trailing_entries": rng.choice([0, 2, 8]),
    }
    known = {field.name for field in dataclasses.fields(RaftConfig)}
    return RaftConfig(**{name: value for name, value in values.items() if name in known})


def _draw_load(rng: random.Random, end_ms: int) -> Iterator[Action]:
    """Proposals in bursts and reads, most of them where they are answered, and the snapshots that they make due."""
    for _ in range(rng.choice([15, 40, 80])):
        target = LEADER if rng.random() < 0.9 else rng.randrange(8)
        yield Action(0, rng.randrange(end_ms), "propose", target, amount=rng.choice([1, 1, 1, 2, 6]))
    for _ in range(rng.choice([0, 3, 10])):
        yield _snapshot(rng, rng.randrange(end_ms))
    for _ in range(rng.choice([4, 12])):
        target = rng.choice([LEADER, STALE_LEADER, STALE_LEADER, rng.randrange(8)])
        yield Action(0, rng.randrange(end_ms), "read", target)


def _draw_faults(rng: random.Random, end_ms: int) -> Iterator[Action]:
    names = list(FAULTS)
    weights = [rng.choice([0, 0, 1, 2, 6]) for _ in names]
    if not any(weights):
        return
    for name in rng.choices(names, weights, k=rng.choice([6, 14, 30, 50])):
        yield FAULTS[name](rng, rng.randrange(end_ms))


def _draw_moves(rng: random.Random, end_ms: int) -> Iterator[Action]:
    """In some of the runs replicas get other addresses or listeners, which the rest of a run must not depend on."""
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        yield Action(0, rng.randrange(end_ms), "move", _someone(rng), rng.choice([1, 10, 100]), rng.randrange(4))
    for _ in range(rng.choice([0, 0, 0, 0, 20, 60])):
        yield Action(0, rng.randrange(end_ms), "listen", rng.randrange(8), rng.choice([1, 10]), rng.randrange(4))


def _someone(rng: random.Random) -> int:
    return LEADER if rng.random() < 0.5 else rng.randrange(8)


def _crash(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "crash", _someone(rng), rng.choice([1, 10, 60, 300]), rng.randrange(4))


def _power(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "power", 0, rng.choice([5, 40]), rng.randrange(4), rng.randrange(1 << 16))


def _ambush(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "ambush", _someone(rng), rng.choice([1, 10, 60]), rng.randrange(3), rng.randrange(8))


def _pause(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "pause", _someone(rng), rng.choice([5, 30, 120, 300]), rng.randrange(2))


def _cut(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "cut", _someone(rng), rng.choice([20, 100, 300]), rng.randrange(1, 8), rng.randrange(2))


def _isolate(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "isolate", _someone(rng), rng.choice([20, 100, 200, 400]), rng.randrange(4))


def _orphan(rng: random.Random, at_ms: int) -> Action:
    return Action(
        0, at_ms, "orphan", rng.randrange(8), rng.choice([120, 200, 400]), rng.choice([0, 1, 4]), rng.randrange(4)
    )


def _split(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "split", rng.randrange(8), rng.choice([50, 200, 400]), rng.randrange(1 << 8))


def _noise(rng: random.Random, at_ms: int) -> Action:
    loss, slow, double = (rng.choice([0, 0, 10, 40]) for _ in range(3))
    late_ms = rng.choice([3, 20, 200])
    return Action(
        0, at_ms, "noise", late_ms, rng.choice([50, 200, 600]), loss | slow << 8 | double << 16, rng.randrange(9)
    )


def _replay(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "replay", 0, 0, rng.randrange(1, 1 << 16), rng.choice([1, 3, 12]))


def _stall(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "stall", _someone(rng), rng.choice([10, 60, 250]))


def _fail_disk(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "fail_disk", _someone(rng), 0, rng.randrange(3))


def _wipe(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "wipe", _someone(rng), rng.choice([1, 10, 100]))


def _clock(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "clock", rng.randrange(8), 0, rng.choice([-20, 30, 120, 1000]))


def _stampede(rng: random.Random, at_ms: int) -> Action:
    return Action(
        0, at_ms, "stampede", rng.randrange(8), rng.choice([1, 3]), rng.choice([110, 160, 300]), rng.randrange(4)
    )


def _snapshot(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "snapshot", _someone(rng), rng.choice([0, 3, 40]))


def _corrupt(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "corrupt", rng.randrange(8))


def _forget_file(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "forget_file", LEADER)


def _add_observer(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "add_observer")


def _add_voter(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "add_voter", rng.randrange(8), rng.choice([30, 200, 500]), int(rng.random() < 0.1))


def _remove_voter(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "remove_voter", rng.choice([LEADER, *range(6)]), 0, int(rng.random() < 0.1))


def _transfer(rng: random.Random, at_ms: int) -> Action:
    return Action(0, at_ms, "transfer", rng.randrange(8), rng.choice([30, 100]), int(rng.random() < 0.1))


FAULTS = {
    "crash": _crash,
    "power": _power,
    "ambush": _ambush,
    "pause": _pause,
    "cut": _cut,
    "isolate": _isolate,
    "orphan": _orphan,
    "split": _split,
    "noise": _noise,
    "replay": _replay,
    "stall": _stall,
    "fail_disk": _fail_disk,
    "wipe": _wipe,
    "clock": _clock,
    "stampede": _stampede,
    "snapshot": _snapshot,
    "corrupt": _corrupt,
    "forget_file": _forget_file,
    "add_observer": _add_observer,
    "add_voter": _add_voter,
    "remove_voter": _remove_voter,
    "transfer": _transfer,
}
