from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from fake_driver import FakeDriver, FakeMover, FakeWatch

from tidelog_chaos.drivers import Delay, Member
from tidelog_chaos.faults import KINDS, Nemesis, PlannedFault, draw_plan

FAST = {"_AHEAD_S": (0.0, 0.001), "_CATCH_UP_S": (0.0, 0.001), "_MAJORITY_S": (0.0, 0.001)}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FAST.items():
        monkeypatch.setattr(f"tidelog_chaos.faults.strikes.{name}", value)


class Notes(list[tuple[str, Any]]):
    def note(self, f: str, value: Any) -> None:
        self.append((f, value))

    def of(self, f: str) -> list[Any]:
        return [value for name, value in self if name == f]


def run(
    driver: FakeDriver,
    watch: FakeWatch,
    plan: Sequence[PlannedFault],
    seconds: float,
    mover: FakeMover | None = None,
) -> tuple[Nemesis, Notes]:
    notes = Notes()
    nemesis = Nemesis(driver, plan, watch, mover or FakeMover(), notes.note)
    nemesis.start()
    time.sleep(seconds)
    nemesis.stop()
    return nemesis, notes


@pytest.mark.parametrize("seed", range(4))
def test_nemesis_ends_every_fault_that_it_began_and_no_two_in_each_others_way(seed: int) -> None:
    driver = FakeDriver()
    plan = [
        PlannedFault(p.at_s / 200, p.hold_s / 200, p.fault, p.kind, p.seed)
        for p in draw_plan(seed, list(KINDS), 100, (1, 3))
    ]
    nemesis, notes = run(driver, FakeWatch(), plan, 0.7)
    assert driver.is_healed
    assert not nemesis.active
    assert not nemesis.failures
    for fault in KINDS:
        begun = [value["what"] for value in notes.of(f"start-{fault}")]
        assert sorted(begun) == sorted(value["what"] for value in notes.of(f"stop-{fault}"))
    assert len(notes) > 20


def test_nemesis_heals_faults_that_last_when_it_is_stopped() -> None:
    driver = FakeDriver()
    plan = [
        PlannedFault(0, 100, "kill", "node", 1),
        PlannedFault(0, 100, "partition", "halves", 2),
        PlannedFault(0, 100, "pause", "controller", 3),
        PlannedFault(0, 100, "clock", "all", 4),
    ]
    _, notes = run(driver, FakeWatch(), plan, 0.2)
    assert driver.is_healed
    assert driver.most_cut > 0
    assert [f for f, _ in notes] == [
        *("start-kill", "start-partition", "start-pause", "start-clock"),
        *("stop-kill", "stop-partition", "stop-pause", "stop-clock"),
    ]


def test_nemesis_damages_no_log_while_a_replica_is_not_in_sync() -> None:
    driver, watch = FakeDriver(), FakeWatch()
    watch.missing = "t-0 has the ISR [1]"
    plan = [PlannedFault(0, 0.01, "disk-corrupt", "flip", 1)]
    _, notes = run(driver, watch, plan, 0.1)
    assert driver.log == []
    assert notes.of("skip-disk-corrupt") == [{"kind": "flip"}]


def test_nemesis_damages_no_log_while_another_fault_lasts_and_waits_until_the_replica_is_back() -> None:
    driver, watch = FakeDriver(), FakeWatch()
    plan = [
        PlannedFault(0, 0.05, "disk-corrupt", "truncate", 1),
        PlannedFault(0.2, 0.2, "pause", "node", 2),
        PlannedFault(0.3, 0.01, "disk-corrupt", "flip", 3),
    ]
    nemesis, notes = run(driver, watch, plan, 0.6)
    assert [line.split()[0] for line in driver.log] == ["kill", "damage-truncate", "revive", "pause"]
    assert len(notes.of("skip-disk-corrupt")) == 1
    assert len(nemesis.damaged) == 1
    # Once before the damage, once after the node came back.
    assert watch.asked.acquire(blocking=False)
    assert watch.asked.acquire(blocking=False)


def test_nemesis_leaves_a_stale_node_alone_with_one_that_lost_records_and_brings_the_others_back() -> None:
    driver, watch = FakeDriver(), FakeWatch()
    plan = [PlannedFault(0, 0.05, "disk-corrupt", "stale-majority", 1), PlannedFault(0.02, 0.1, "kill", "node", 2)]
    nemesis, notes = run(driver, watch, plan, 0.3)
    stale, crashed, rest = (line.split(" ", 1)[1] for line in (driver.log[0], driver.log[1], driver.log[3]))
    assert {stale, crashed, rest} == {"node 1", "node 2", "node 3"}
    assert driver.log == [
        *(f"pause {stale}", f"kill {crashed}", f"damage-lose {crashed}", f"pause {rest}", f"revive {crashed}")
    ]
    # All nodes are in hand meanwhile.
    assert notes.of("skip-kill") == [{"kind": "node"}]
    assert driver.is_healed
    assert [str(member) for member in nemesis.damaged] == [crashed]
    assert watch.asked.acquire(blocking=False)


def test_nemesis_gives_partitions_back_at_the_end_and_says_which_it_cannot() -> None:
    driver, mover = FakeDriver(), FakeMover()
    plan = [PlannedFault(0, 0.05, "reassign", "leader", 1), PlannedFault(0, 100, "kill", "node", 2)]
    nemesis, notes = run(driver, FakeWatch(), plan, 0.2, mover)
    assert [value["what"] for value in notes.of("stop-reassign")] == ["move t-0 [1, 2] to [2, 3]"]
    assert (mover.begun, mover.away, nemesis.failures) == (1, [], [])
    mover.stuck = True
    nemesis, _ = run(driver, FakeWatch(), plan, 0.1, mover)
    assert nemesis.failures == ["t-0 could not be moved back"]
    assert driver.is_healed


def test_nemesis_goes_on_and_says_so_when_the_driver_fails_to_do_something() -> None:
    driver = FakeDriver(broken=["pause"])
    plan = [PlannedFault(0, 1, "pause", "node", 1), PlannedFault(0.01, 0.01, "kill", "node", 2)]
    nemesis, notes = run(driver, FakeWatch(), plan, 0.2)
    assert nemesis.failures == ["pause (node) could not be done: pause does not work here"]
    assert notes.of("skip-pause") == [{"kind": "node", "error": "pause does not work here"}]
    assert len(notes.of("stop-kill")) == 1
    assert driver.is_healed


class FailingDriver(FakeDriver):
    """Fails to delay one member, and to resume a paused one the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.resumed = 0

    def delay(self, member: Member, delay: Delay) -> None:
        if member == Member("node", 2):
            raise RuntimeError("there is no tunnel")
        super().delay(member, delay)

    def resume(self, member: Member) -> None:
        self.resumed += 1
        if self.resumed == 1:
            raise RuntimeError("no answer")
        super().resume(member)


def test_nemesis_leaves_nobody_delayed_when_one_of_many_cannot_be() -> None:
    driver = FailingDriver()
    nemesis, notes = run(driver, FakeWatch(), [PlannedFault(0, 100, "delay", "all", 1)], 0.1)
    assert nemesis.failures == ["delay (all) could not be done: there is no tunnel"]
    assert [f for f, _ in notes] == ["skip-delay"]
    assert len(driver.log) > 1
    assert driver.is_healed


def test_nemesis_goes_on_when_a_fault_cannot_be_ended_in_time_and_ends_it_at_the_end() -> None:
    driver = FailingDriver()
    plan = [PlannedFault(0, 0.01, "pause", "controller", 1), PlannedFault(0.1, 0.01, "kill", "node", 2)]
    nemesis, notes = run(driver, FakeWatch(), plan, 0.3)
    [failure] = nemesis.failures
    assert failure.startswith("pause controller ")
    assert failure.endswith(" could not be ended in time: no answer")
    assert [f for f, _ in notes] == ["start-pause", "start-kill", "stop-kill", "stop-pause"]
    assert driver.is_healed


def test_nemesis_raises_at_the_end_what_ended_its_thread() -> None:
    driver = FakeDriver()
    driver.down.add(Member("node", 1))
    nemesis = Nemesis(driver, [PlannedFault(0, 1, "kill", "no such kind", 1)], FakeWatch(), FakeMover(), _fail)
    nemesis.start()
    time.sleep(0.1)
    with pytest.raises(ValueError, match="closed"):
        nemesis.stop()
    assert driver.is_healed


def _fail(f: str, value: Any) -> None:
    raise ValueError("the history is closed")
