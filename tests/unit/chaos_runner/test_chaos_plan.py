from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_chaos.faults.plan import KINDS, draw_plan, parse_faults
from tidelog_foundation.errors import ConfigError

INTERVALS = st.tuples(st.floats(0.5, 20), st.floats(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 2**40), st.sets(st.sampled_from(list(KINDS))), st.floats(1, 200), INTERVALS)
def test_plan_is_the_same_for_a_seed_and_keeps_to_intervals_and_duration(
    seed: int, faults: set[str], duration_s: float, interval_s: tuple[float, float]
) -> None:
    asked = sorted(faults)
    plan = draw_plan(seed, asked, duration_s, interval_s)
    assert plan == draw_plan(seed, asked, duration_s, interval_s)
    times = sorted({fault.at_s for fault in plan})
    assert times == [t for t in times if t < max(duration_s, interval_s[0])]
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    assert all(interval_s[0] - 1e-9 <= gap <= interval_s[1] + 1e-9 for gap in gaps)
    assert all(fault.fault in faults and fault.kind in KINDS[fault.fault] and fault.hold_s > 0 for fault in plan)
    for at_s in times:
        together = [fault.fault for fault in plan if fault.at_s == at_s]
        assert len(together) == len(set(together)) <= 3


def test_plan_draws_faults_alone_and_together_and_every_kind_of_them() -> None:
    plan = draw_plan(1, list(KINDS), 36_000, (5, 15))
    sizes = {sum(other.at_s == fault.at_s for other in plan) for fault in plan}
    assert sizes == {1, 2, 3}
    assert {(fault.fault, fault.kind) for fault in plan} == {(f, k) for f, kinds in KINDS.items() for k in kinds}


def test_faults_are_named_alone_in_groups_and_by_one_kind() -> None:
    assert parse_faults("pause, kill") == ("kill", "pause")
    assert parse_faults("disk") == ("disk-full", "disk-corrupt")
    assert parse_faults("none") == ()
    assert parse_faults("kill:ahead,partition:ring") == ("kill:ahead", "partition:ring")
    plan = draw_plan(1, ("kill:ahead",), 100, (5, 5))
    assert {(fault.fault, fault.kind) for fault in plan} == {("kill", "ahead")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kil", '"kil" is not a fault; there are kill, stop'),
        ("kill:softly", '"softly" is not a kind of kill; there are leader, node'),
        ("disk:full", '"full" is not a kind of disk'),
    ],
)
def test_faults_that_are_not_known_are_refused_with_those_that_are(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_faults(text)


def test_plan_refuses_an_interval_that_descends_or_is_empty() -> None:
    for interval in ((3.0, 2.0), (0.0, 1.0)):
        with pytest.raises(ConfigError, match="interval between faults"):
            draw_plan(1, ["kill"], 10, interval)
