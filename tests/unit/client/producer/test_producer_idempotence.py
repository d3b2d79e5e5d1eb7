"""The producer's core against the node's producer states, in every order of things: nothing twice, all in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from producer_cluster import LIMITS, ProducerCluster
from seeds import reproducible, seed_blocks

from tidelog.producer.core import partition_queue
from tidelog.producer.core.batch import Batch
from tidelog.producer.core.numbering import Numbering, ProducerIdAndEpoch, ProducerNumber
from tidelog.producer.core.partition_queue import PartitionQueue
from tidelog.producer.core.splitting import halves
from tidelog_foundation.errors import ErrorCode

REFUSED = (None, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


class IdempotenceMachine(RuleBasedStateMachine):
    """Whatever happens to requests, answers and leaders, :meth:`ProducerCluster.check` holds."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ProducerCluster()

    @rule(count=st.integers(1, 9))
    def produce(self, count: int) -> None:
        self.world.produce(count)

    @rule(elapsed_ms=st.sampled_from([0, 1, 10, 100, 700]))
    def poll(self, elapsed_ms: int) -> None:
        self.world.poll(elapsed_ms)

    @precondition(lambda self: self.world.network)
    @rule(data=st.data(), refusal=st.sampled_from(REFUSED))
    def deliver(self, data: st.DataObject, refusal: ErrorCode | None) -> None:
        position = data.draw(st.integers(0, len(self.world.network) - 1))
        self.world.deliver(position, refusal)

    @precondition(lambda self: self.world.network)
    @rule(data=st.data())
    def lose_request(self, data: st.DataObject) -> None:
        self.world.lose_request(data.draw(st.integers(0, len(self.world.network) - 1)))

    @precondition(lambda self: self.world.answers)
    @rule(data=st.data(), is_lost=st.booleans())
    def answer(self, data: st.DataObject, is_lost: bool) -> None:
        position = data.draw(st.integers(0, len(self.world.answers) - 1))
        (self.world.lose_answer if is_lost else self.world.answer)(position)

    @rule(follower=st.integers(0, 2), batches=st.integers(1, 3))
    def replicate(self, follower: int, batches: int) -> None:
        self.world.replicate(follower, batches)

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(node=st.integers(0, 2))
    def elect(self, node: int) -> None:
        self.world.elect(node)

    @rule(node=st.integers(0, 2))
    def step_down(self, node: int) -> None:
        self.world.step_down(node)

    @rule()
    def refresh(self) -> None:
        self.world.refresh()

    @precondition(lambda self: self.world.awaited)
    @rule(count=st.integers(1, 5))
    def break_connection(self, count: int) -> None:
        self.world.break_connection(count)

    @rule(in_queue=st.booleans(), in_flight=st.booleans())
    def purge(self, in_queue: bool, in_flight: bool) -> None:
        self.world.purge(in_queue, in_flight)

    @invariant()
    def promises_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.settle_all()


TestIdempotenceMachine = IdempotenceMachine.TestCase
TestIdempotenceMachine.settings = settings(max_examples=examples(60), stateful_step_count=steps(50), deadline=None)


Refusal = Callable[[random.Random], ErrorCode | None]


def walk(world: ProducerCluster, dice: random.Random, steps: int, refusal: Refusal | None = None) -> None:
    """Let things happen as in the machine, with weights of this walk's own, and check now and then."""
    things: list[Callable[[], None]] = [
        lambda: world.produce(dice.randint(1, 9)),
        lambda: world.poll(dice.choice((0, 1, 10, 100, 700))),
        lambda: world.network and world.deliver(_any(world.network, dice), (refusal or _refusal)(dice)),
        lambda: world.network and world.deliver(0),
        lambda: world.network and world.lose_request(_any(world.network, dice)),
        lambda: world.answers and world.answer(_any(world.answers, dice)),
        lambda: world.answers and world.answer(0),
        lambda: world.answers and world.lose_answer(_any(world.answers, dice)),
        lambda: world.replicate(dice.randrange(3), dice.randint(1, 3)),
        lambda: world.commit(),
        lambda: world.elect(dice.randrange(3)),
        lambda: world.step_down(dice.randrange(3)),
        lambda: world.refresh(),
        lambda: world.break_connection(dice.randint(1, 5)),
        lambda: world.purge(dice.random() < 0.5, dice.random() < 0.5) if dice.random() < 0.1 else None,
    ]
    weights = [dice.choice((0.02, 0.2, 1, 3)) for _ in things]
    for step in range(steps):
        dice.choices(things, weights)[0]()
        if step % 20 == 0:
            world.check()
    world.settle_all()


def _any(items: list[object], dice: random.Random) -> int:
    return dice.randrange(len(items))


def _refusal(dice: random.Random) -> ErrorCode | None:
    return dice.choice(REFUSED) if dice.random() < 0.1 else None


@pytest.mark.costly
@pytest.mark.sim
@pytest.mark.parametrize("block", seed_blocks(200, 50), ids=str)
def test_idempotent_producer_keeps_its_promises_on_long_walks(block: range) -> None:
    acknowledged = 0
    for seed in block:
        world = ProducerCluster()
        with reproducible(seed):
            walk(world, random.Random(seed), 600)
        acknowledged += sum(settle.error is None for settle in world.settled.values())
    assert len(block) == 1 or acknowledged > 50 * len(block)


def walk_where_batches_expire_early(seeds: int) -> int:
    """Return how many epochs were begun."""
    begun = 0
    for seed in range(seeds):
        world = ProducerCluster(replace(LIMITS, message_timeout_ms=120, overdue_ms=40))
        walk(world, random.Random(seed), 300)
        begun += len(world.numbers)
    return begun


@pytest.mark.costly
def test_idempotent_producer_keeps_its_promises_where_batches_expire_early() -> None:
    assert walk_where_batches_expire_early(200) > 400


def walk_where_leaders_are_narrow(seeds: int) -> None:
    """Have batches refused as too large often: whole, in doubt, and out of their turn."""
    for seed in range(seeds):
        walk(ProducerCluster(), random.Random(seed), 300, _too_large)


@pytest.mark.costly
def test_idempotent_producer_keeps_its_promises_where_batches_are_split() -> None:
    walk_where_leaders_are_narrow(600)


def _split_what_may_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "may_be_split", property(lambda self: self.count > 1))


def _swap_the_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_queue, "halves", lambda batch: halves(batch)[::-1])
    monkeypatch.setattr(PartitionQueue, "check_invariants", lambda self: None)


@pytest.mark.parametrize("plant", [_split_what_may_be_stored, _swap_the_halves])
def test_a_bug_planted_into_splitting_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        walk_where_leaders_are_narrow(1_500)


def _too_large(dice: random.Random) -> ErrorCode | None:
    return ErrorCode.MESSAGE_TOO_LARGE if dice.random() < 0.35 else None


def _trust_any_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbering, "is_known_to", lambda self, leader, now_ms: True)


def _close_every_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Kafka's TransactionManager does: what is in flight gets new numbers when a batch before it was given up.
    monkeypatch.setattr(PartitionQueue, "_close_gap", lambda self, given_up: self._number_anew())


def _stay_in_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sequences begin again, and a batch may have the number of one that was given up and is stored.
    take = Numbering.take

    def take_of_first_epoch(self: Numbering, count: int, fresh: ProducerIdAndEpoch | None) -> ProducerNumber:
        return take(self, count, fresh)._replace(epoch=0)

    monkeypatch.setattr(Numbering, "take", take_of_first_epoch)


def _forget_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionQueue, "_doubt", lambda self, batch: None)


@pytest.mark.parametrize("plant", [_trust_any_leader, _close_every_gap, _stay_in_the_epoch, _forget_doubts])
def test_a_bug_planted_into_the_producer_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        walk_where_batches_expire_early(2_000)
