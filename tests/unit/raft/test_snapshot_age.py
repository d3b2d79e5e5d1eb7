from __future__ import annotations

from tidelog_quorum.raft.snapshot_age import LatestSnapshot, SnapshotAge


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def test_snapshot_age_counts_from_the_start_until_a_snapshot_is_generated() -> None:
    """As Kafka's SnapshotEmitterMetrics: a loaded snapshot has a size, but does not begin the age again."""
    clock = Clock()
    age = SnapshotAge(clock)
    clock.now_s += 30
    assert age.current() == LatestSnapshot(30_000, 0)
    age.loaded(700)
    assert age.current() == LatestSnapshot(30_000, 700)
    age.generated(1_500)
    assert age.current() == LatestSnapshot(0, 1_500)
    clock.now_s += 2
    age.loaded(900)
    assert age.current() == LatestSnapshot(2_000, 1_500), "the generated one counts"
