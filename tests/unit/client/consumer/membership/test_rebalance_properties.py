"""Rebalances under faults: whole groups in simulated time, with the node's own coordinator (``group_world``).

While they go on no partition has two owners in one generation; in the end every partition that a member can own is
owned by exactly one. Where nothing fails no partition has two owners at any time, sticky assignors move as few as any
could, and members that cooperate are never asked for a partition that stays theirs. In mixed groups members of both
protocols come and go, so that the group is upgraded and downgraded while it works (KIP-848).
"""

from __future__ import annotations

import os

import pytest
from example_counts import examples
from group_world import MAX_POLL_MS, SESSION_MS, Faults, SimMember, World
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import environment_number

from tidelog.consumer.membership.events import Key
from tidelog_foundation.errors import ErrorCode

EXAMPLES = environment_number("TIDELOG_SIM_SEEDS") or examples(8)
TOPICS = ("a", "b", "c")
PROTOCOLS = {
    "range": ("classic", ("range",)),
    "roundrobin": ("classic", ("roundrobin",)),
    "sticky": ("classic", ("sticky",)),
    "cooperative-sticky": ("classic", ("cooperative-sticky",)),
    "mixed": ("classic", ("cooperative-sticky", "range")),
    "consumer": ("consumer", ()),
}
BOTH = {
    "range and consumer": ("range",),
    "cooperative-sticky and consumer": ("cooperative-sticky",),
    "sticky and consumer": ("sticky",),
}
"""Groups that have classic members with these assignors and members of the consumer protocol."""
subscriptions = st.sets(st.sampled_from(TOPICS), min_size=1)
indexes = st.integers(0, 7)
pauses = st.sampled_from((10, 300, 2_000, 15_000))


def nth_alive(world: World, index: int) -> SimMember | None:
    live = [member for member in world.members if member.is_alive]
    return live[index % len(live)] if live else None


def _other(protocol: str) -> str:
    return "classic" if protocol == "consumer" else "consumer"


class Operator:
    """Does to a world what hypothesis draws."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restarts = 0

    def join(self, topics: set[str]) -> None:
        if len([member for member in self.world.members if member.is_alive]) < 5:
            self.world.join(topics)

    def join_other(self, topics: set[str]) -> None:
        """A member of the protocol that the world does not begin with joins."""
        if len([member for member in self.world.members if member.is_alive]) < 5:
            self.world.join(topics, protocol=_other(self.world.protocol))

    def roll(self, index: int) -> None:
        """A member restarts with the other protocol, as in a rolling upgrade."""
        if member := nth_alive(self.world, index):
            topics = member.topics
            member.close()
            self.world.join(topics or {"a"}, protocol=_other(member.settings.group_protocol))

    def join_static(self, topics: set[str]) -> None:
        self.restarts += 1
        self.world.join(topics, f"static-{self.restarts}")

    def close(self, index: int) -> None:
        if member := nth_alive(self.world, index):
            member.close()

    def crash(self, index: int) -> None:
        if member := nth_alive(self.world, index):
            self.world.crash(member)

    def restart(self, index: int) -> None:
        """A static member comes back; one that crashed could not, with KIP-848, before its session is over."""
        static = [m for m in self.world.members if m.is_alive and m.settings.group_instance_id is not None]
        if static:
            member = static[index % len(static)]
            topics = member.topics
            if member.settings.group_protocol == "consumer":
                member.close()
                self.world.run(10_000)
            self.world.crash(member)
            instance_id, protocol = member.settings.group_instance_id, member.settings.group_protocol
            self.world.join(topics or {"a"}, instance_id, protocol)

    def subscribe(self, index: int, topics: set[str]) -> None:
        self._resubscribe(index, topics)

    def unsubscribe(self, index: int) -> None:
        self._resubscribe(index, set())

    def _resubscribe(self, index: int, topics: set[str]) -> None:
        """Not for static members of the classic protocol: one that comes back keeps its assignment, as in Kafka, even
        if it has come to subscribe to other topics meanwhile."""
        member = nth_alive(self.world, index)
        if member is None or member.is_closing:
            return
        if member.settings.group_protocol == "consumer" or member.settings.group_instance_id is None:
            member.subscribe(topics)

    def stall(self, index: int, ms: int) -> None:
        if member := nth_alive(self.world, index):
            member.stalled_until_ms = self.world.now_ms + ms

    def grow(self, topic: str) -> None:
        known = self.world.topics.get(topic)
        self.world.create_topic(topic, known.partitions + 1 if known else 2)

    def move(self, ms: int) -> None:
        if self.world.shard is not None:
            self.world.move_coordinator(ms)

    def lose(self, loss: float) -> None:
        self.world.faults = Faults(loss=loss, latency_ms=200 if loss else 20)

    def run(self, ms: int) -> None:
        self.world.run(ms)


Actions = list[tuple[str, tuple[object, ...]]]


def action(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[str, tuple[object, ...]]]:
    return st.tuples(st.just(name), st.tuples(*arguments))


calm = (
    action("join", subscriptions),
    action("close", indexes),
    action("subscribe", indexes, subscriptions),
    action("unsubscribe", indexes),
    action("grow", st.sampled_from(TOPICS)),
    action("run", pauses),
)
rough = (
    action("join_static", subscriptions),
    action("restart", indexes),
    action("crash", indexes),
    action("stall", indexes, st.sampled_from((3_000, MAX_POLL_MS + 1_000, MAX_POLL_MS + SESSION_MS))),
    action("move", st.sampled_from((50, 2_000, 15_000))),
    action("lose", st.sampled_from((0.0, 0.1, 0.4))),
)


mixing = (action("join_other", subscriptions), action("roll", indexes))


def perform(world: World, actions: Actions) -> None:
    operator = Operator(world)
    for name, arguments in actions:
        getattr(operator, name)(*arguments)
        world.run(5)


def new_world(seed: int, assignor: str) -> World:
    protocol, assignors = PROTOCOLS[assignor]
    world = World(seed, protocol=protocol, assignors=assignors)
    world.create_topic("a", 5)
    world.create_topic("b", 3)
    for topics in (("a",), ("a", "b"), ("a", "b", "c")):
        world.join(topics)
    return world


def new_mixed_world(seed: int, assignors: tuple[str, ...]) -> World:
    world = World(seed, protocol="consumer" if seed % 2 else "classic", assignors=assignors)
    world.create_topic("a", 5)
    world.create_topic("b", 3)
    for topics, protocol in ((("a",), "classic"), (("a", "b"), "consumer"), (("a", "b", "c"), None)):
        world.join(topics, protocol=protocol)
    return world


@pytest.mark.parametrize("assignor", PROTOCOLS)
@settings(max_examples=EXAMPLES, derandomize="TIDELOG_SIM_SEEDS" not in os.environ)
@given(
    seed=st.integers(0, 2**32),
    actions=st.lists(st.one_of(*calm, *rough, *calm[-1:], *calm[:1]), min_size=4, max_size=30),
)
def test_rebalances_under_faults_leave_one_owner_per_partition(assignor: str, seed: int, actions: Actions) -> None:
    world = new_world(seed, assignor)
    perform(world, actions)
    world.settle()


@pytest.mark.parametrize("assignor", PROTOCOLS)
@settings(max_examples=EXAMPLES, derandomize="TIDELOG_SIM_SEEDS" not in os.environ)
@given(seed=st.integers(0, 2**32), actions=st.lists(st.one_of(*calm, *calm[-1:]), min_size=2, max_size=20))
def test_rebalances_without_faults_never_have_two_owners(assignor: str, seed: int, actions: Actions) -> None:
    world = new_world(seed, assignor)
    world.is_strict = True
    perform(world, actions)
    world.settle()
    assert not [revoke for member in world.members for revoke in member.revoked if revoke.lost]
    assert not [error for member in world.members for error in member.errors]


@pytest.mark.parametrize("assignors", BOTH.values(), ids=BOTH)
@settings(max_examples=EXAMPLES, derandomize="TIDELOG_SIM_SEEDS" not in os.environ)
@given(
    seed=st.integers(0, 2**32),
    actions=st.lists(st.one_of(*calm, *rough, *calm[-1:], *mixing, *mixing), min_size=4, max_size=30),
)
def test_mixed_group_under_faults_ends_with_one_owner_per_partition(
    assignors: tuple[str, ...], seed: int, actions: Actions
) -> None:
    world = new_mixed_world(seed, assignors)
    perform(world, actions)
    world.settle()


@pytest.mark.parametrize("assignors", BOTH.values(), ids=BOTH)
@settings(max_examples=EXAMPLES, derandomize="TIDELOG_SIM_SEEDS" not in os.environ)
@given(
    seed=st.integers(0, 2**32),
    actions=st.lists(st.one_of(*calm, *calm[-1:], *mixing, *mixing), min_size=2, max_size=20),
)
def test_mixed_group_without_faults_never_has_two_owners(
    assignors: tuple[str, ...], seed: int, actions: Actions
) -> None:
    world = new_mixed_world(seed, assignors)
    world.is_strict = True
    perform(world, actions)
    world.settle()
    assert not [error for member in world.members for error in member.errors]


@pytest.mark.parametrize("assignors", BOTH.values(), ids=BOTH)
def test_group_is_upgraded_and_downgraded_while_its_members_are_replaced_one_by_one(
    assignors: tuple[str, ...],
) -> None:
    world = World(1, assignors=assignors, is_strict=True)
    world.create_topic("a", 6)
    for _ in range(3):
        world.join("a")
    world.settle()
    assert world.epochs() is None
    for protocol in ("consumer", "classic"):
        for member in [member for member in world.members if member.is_alive]:
            member.close()
            world.join("a", protocol=protocol)
            world.settle()
        assert (world.epochs() is None) == (protocol == "classic")


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "consumer"])
@settings(max_examples=EXAMPLES, derandomize="TIDELOG_SIM_SEEDS" not in os.environ)
@given(seed=st.integers(0, 2**32), changes=st.lists(st.one_of(*calm[:-1]), min_size=1, max_size=4))
def test_cooperative_rebalance_never_asks_for_a_partition_that_stays(
    assignor: str, seed: int, changes: Actions
) -> None:
    world = new_world(seed, assignor)
    world.settle()
    for change in changes:
        for member in world.members:
            member.revoked.clear()
        perform(world, [change])
        world.settle()
        for member in world.members:
            stopped = frozenset[Key]().union(*(revoke.partitions for revoke in member.revoked))
            assert not stopped & member.owned, world.describe()


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
@settings(max_examples=EXAMPLES, derandomize="TIDELOG_SIM_SEEDS" not in os.environ)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 4), joining=st.integers(0, 2), leaving=st.integers(0, 3))
def test_sticky_rebalance_moves_as_few_partitions_as_any_could(
    assignor: str, seed: int, count: int, joining: int, leaving: int
) -> None:
    protocol, assignors = PROTOCOLS[assignor]
    world = World(seed, protocol=protocol, assignors=assignors)
    world.create_topic("a", 7)
    world.create_topic("b", 4)
    for _ in range(count):
        world.join("ab")
    world.settle()
    before = world.placement()
    for member in world.members[: min(leaving, count - 1)]:
        member.close()
    for _ in range(joining):
        world.join("ab")
    world.settle()
    after = world.placement()
    moved = sum(len(before.get(name, frozenset()) - owned) for name, owned in after.items())
    assert moved == least_moves([len(before.get(name, ())) for name in after], 11)


def least_moves(held: list[int], count: int) -> int:
    """The least number of partitions that members must lose so that all have as many, or one more."""
    least, more = divmod(count, len(held))
    return sum(max(0, has - least - (row < more)) for row, has in enumerate(sorted(held, reverse=True)))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_static_member_comes_back_to_its_partitions(assignor: str) -> None:
    world = new_world(1, assignor)
    static = world.join("ab", "i-1")
    world.settle()
    before = world.placement()
    for member in world.members:
        member.revoked.clear()
    static.close()
    world.run(SESSION_MS // 2)
    back = world.join("ab", "i-1")
    world.settle()
    assert back.owned == before[static.name]
    assert {name: owned for name, owned in world.placement().items() if name != back.name} == {
        name: owned for name, owned in before.items() if name != static.name
    }
    assert not any(member.revoked for member in world.members if member is not static)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_second_live_member_of_an_instance_id_is_fenced_from_the_first(assignor: str) -> None:
    world = new_world(1, assignor)
    first = world.join("ab", "i-1")
    world.settle()
    second = world.join("ab", "i-1")
    world.settle()
    assert [first.is_fatal, second.is_fatal].count(True) == 1
    fenced = first if first.is_fatal else second
    expected = ErrorCode.UNRELEASED_INSTANCE_ID if assignor == "consumer" else ErrorCode.FENCED_INSTANCE_ID
    assert [error.code for error in fenced.errors] == [expected]
    assert not fenced.owned


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_coordinator_move_alone_takes_no_partition_from_its_owner(assignor: str) -> None:
    world = new_world(3, assignor)
    world.settle()
    for member in world.members:
        member.revoked.clear()
    world.move_coordinator(2_000)
    world.settle()
    assert not any(member.revoked for member in world.members)


@pytest.mark.parametrize("returns", ["stalled", "restarted", "restarted while it led"])
def test_partition_that_a_returning_static_member_was_to_give_up_gets_an_owner(returns: str) -> None:
    """It comes back without a rebalance (KIP-345), and nobody but the leader knows that one is still needed."""
    world = World(0, assignors=("cooperative-sticky",))
    world.create_topic("a", 4)
    leads = returns == "restarted while it led"
    first = world.join("a", "i-1" if leads else None)
    world.settle()
    static = first if leads else world.join("a", "i-1")
    world.settle()
    before = static.owned
    static.stalled_until_ms = world.now_ms + MAX_POLL_MS + 1_000
    world.join("a")
    while static.owned == before and not any(revoke.partitions for revoke in static.revoked):
        world.run(5)
    if returns != "stalled":
        world.crash(static)
        world.join("a", "i-1")
    world.settle()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pause_ms", [2, 6, 10, 14, 18])
def test_partitions_that_a_member_never_took_are_free_at_once(seed: int, pause_ms: int) -> None:
    """The subscription changes while the first assignment is on its way, and the next one takes all of it back."""
    world = World(seed, protocol="consumer")
    world.create_topic("a", 4)
    world.create_topic("b", 1)
    first = world.join("a")
    world.run(pause_ms)
    first.subscribe("b")
    world.join("a")
    world.run(5_000)
    assert world.is_complete(), world.describe()
