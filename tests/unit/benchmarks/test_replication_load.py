from __future__ import annotations

import pytest

from benchmarks.replication_latency import _Exchange, _split
from benchmarks.replication_load import Sent, SteadyLoad
from benchmarks.replication_trace import NodeTrace


def load_of(*records: Sent) -> SteadyLoad:
    load = SteadyLoad("127.0.0.1:1", "t", 1, 100, 10, {})
    load.acknowledged[0].extend(records)
    return load


def test_gap_counts_from_the_last_acknowledgement_before_the_failure() -> None:
    load = load_of(Sent(0, 0.0, 5.0), Sent(1, 5.9, 6.0), Sent(2, 6.1, 7.5), Sent(3, 7.5, 7.6))

    assert load.longest_gap_s(0, start_s=6.2) == pytest.approx(1.5)
    assert load.longest_gap_s(0, start_s=7.55) == pytest.approx(0.1)


def test_latency_is_of_the_records_that_were_produced_in_the_window() -> None:
    load = load_of(Sent(0, 0.0, 9.0), Sent(1, 5.0, 5.2), Sent(2, 5.5, 5.6), Sent(3, 6.0, 8.0))

    assert load.longest_latency_s(5.0, 6.0) == pytest.approx(0.2)


def test_hops_of_a_record_add_up_to_its_latency_and_follow_the_slower_follower() -> None:
    sent = Sent(7, 1.0, 2.0)
    leader = NodeTrace(appended=[("latency-0", 7, 1.2, 1.3)], committed=[("latency-0", 7, 1.1), ("latency-0", 8, 1.7)])
    quick = NodeTrace(copied=[("latency-0", 8, 1.35, 1.4)])
    slow = NodeTrace(copied=[("latency-0", 7, 1.0, 1.05), ("latency-0", 9, 1.5, 1.6)])

    [hops] = _split([sent], {7: _Exchange(1.1, 1.9)}, {1: leader, 2: quick, 3: slow}, leader=1)

    assert hops == pytest.approx((0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.2, 0.1))
    assert sum(hops) == pytest.approx(sent.latency_s)
