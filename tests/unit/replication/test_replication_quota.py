import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.replication.quota import SAMPLE_MS, SAMPLES, SPAN_MS, UNLIMITED, ReplicationQuota, is_throttled

RATE = 1_000
LARGEST = 5_000


def test_quota_without_a_limit_is_never_exceeded():
    quota = ReplicationQuota()

    quota.record(10**12, 0)

    assert not quota.is_exceeded(0)
    assert quota.wait_ms(0) == 0
    assert quota.bytes_per_second == UNLIMITED


def test_quota_is_exceeded_when_more_than_one_second_s_bytes_go_at_once():
    quota = ReplicationQuota(RATE)

    quota.record(RATE, 0)
    assert not quota.is_exceeded(0)
    quota.record(1, 0)

    assert quota.is_exceeded(0)
    assert quota.rate(0) == RATE + 1


def test_quota_is_kept_again_when_the_bytes_have_had_their_time():
    quota = ReplicationQuota(RATE)

    quota.record(3 * RATE, 100)

    assert quota.wait_ms(100) == 3_000
    assert quota.is_exceeded(3_099)
    assert not quota.is_exceeded(3_100)


def test_quota_forgets_a_transfer_that_was_far_too_large_after_its_span():
    quota = ReplicationQuota(RATE)

    quota.record(1_000 * RATE, 0)

    assert quota.wait_ms(0) == SPAN_MS
    assert quota.is_exceeded(SPAN_MS - 1)
    assert not quota.is_exceeded(SPAN_MS)
    assert quota.rate(SPAN_MS) == 0


def test_quota_counts_earlier_transfers_when_its_limit_changes():
    quota = ReplicationQuota()
    quota.record(10 * RATE, 0)

    quota.change_rate(RATE)
    assert quota.is_exceeded(5_000)
    quota.change_rate(10 * RATE)

    assert not quota.is_exceeded(5_000)


def test_quota_of_nothing_lets_nothing_pass_until_it_is_forgotten():
    quota = ReplicationQuota(0)

    quota.record(100, 0)

    assert quota.wait_ms(0) == SPAN_MS


steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, LARGEST), st.booleans()), max_size=200)


@given(steps)
def test_quota_never_lets_more_pass_than_one_span_s_bytes_and_one_transfer(asked):
    quota, now_ms = ReplicationQuota(RATE), 0
    passed = []
    for pause_ms, size, _ in asked:
        now_ms += pause_ms
        if not quota.is_exceeded(now_ms):
            quota.record(size, now_ms)
            passed.append((now_ms, size))
        quota.check_invariants()
    for end_ms, _ in passed:
        within = [size for at, size in passed if end_ms - (SAMPLES - 1) * SAMPLE_MS <= at <= end_ms]
        assert sum(within) <= RATE * SPAN_MS / 1000 + LARGEST


@given(st.lists(st.integers(1, LARGEST), min_size=50, max_size=400))
def test_quota_holds_over_a_long_time_for_a_reader_that_always_wants_more(sizes):
    quota, now_ms = ReplicationQuota(RATE), 0
    for size in sizes:
        now_ms += quota.wait_ms(now_ms)
        assert not quota.is_exceeded(now_ms)
        quota.record(size, now_ms)
        quota.check_invariants()
    elapsed_s = max(now_ms / 1000, 1)
    assert sum(sizes[:-1]) <= RATE * (elapsed_s + SPAN_MS / 1000) + LARGEST
    # Nor does it hold anybody up: half of the limit is used at least.
    assert sum(sizes) >= RATE * elapsed_s / 2 - RATE


@given(steps)
def test_quota_s_wait_ends_exactly_when_it_is_kept(asked):
    quota, now_ms = ReplicationQuota(RATE), 0
    for pause_ms, size, _ in asked:
        now_ms += pause_ms
        quota.record(size, now_ms)
        wait_ms = quota.wait_ms(now_ms)
        quota.check_invariants()
    if asked and wait_ms > 1:
        assert quota.is_exceeded(now_ms + wait_ms - 1)
    if asked:
        assert not quota.is_exceeded(now_ms + wait_ms)


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [((), False), (("*",), True), (("0:1", "3:2"), True), (("3:1", "0:2"), False), (("3:22", "33:2"), False)],
)
def test_list_of_throttled_replicas_names_partition_and_broker(replicas, throttled):
    assert is_throttled(replicas, 3, 2) is throttled
