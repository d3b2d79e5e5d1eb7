import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.replication import EpochEnd, PartitionState, find_divergence, truncation_offset
from tidelog_node.replication.commands import (
    AdvanceHighWatermark,
    AdvanceLogStart,
    RestartLogAt,
    StartFetching,
    TruncateTo,
)
from tidelog_node.replication.events import LogDiverged, LogOutOfRange, RecordsReplicated, RegistrationChanged


def follower(high_watermark=0, log_end=100, leader_epoch=5):
    state = PartitionState(1, high_watermark, 1, 1_000)
    registration = RegistrationChanged((1, 2), frozenset({1, 2}), 2, leader_epoch, 0, log_end)
    assert state.step(registration, 0) == [StartFetching(2, leader_epoch)]
    return state


def test_follower_takes_the_high_watermark_of_its_leader_bounded_by_its_log():
    state = follower()

    assert state.step(RecordsReplicated(5, 120, 0, 110, 0), 0) == [AdvanceHighWatermark(110)]
    assert state.step(RecordsReplicated(5, 120, 0, 130, 0), 0) == [AdvanceHighWatermark(120)]


def test_follower_keeps_its_high_watermark_when_a_new_leader_is_behind():
    state = follower(high_watermark=50)

    assert state.step(RecordsReplicated(5, 120, 0, 10, 0), 0) == []
    assert state.high_watermark == 50


def test_follower_takes_the_start_of_its_leaders_log():
    state = follower()

    assert state.step(RecordsReplicated(5, 120, 0, 110, 80), 0) == [AdvanceHighWatermark(110), AdvanceLogStart(80)]
    assert state.step(RecordsReplicated(5, 120, 80, 110, 80), 0) == []
    assert state.step(RecordsReplicated(5, 120, 90, 110, 80), 0) == [], "its own retention may have gone further"


def test_follower_deletes_nothing_behind_its_high_watermark():
    state = follower(high_watermark=50)

    assert state.step(RecordsReplicated(5, 120, 0, 10, 80), 0) == [AdvanceLogStart(50)]


@pytest.mark.parametrize(
    "event",
    [
        RecordsReplicated(4, 120, 0, 110, 80),
        LogDiverged(4, EpochEnd(3, 10), EpochEnd(3, 20), 100),
        LogOutOfRange(6, 500, 0, 100),
    ],
)
def test_follower_ignores_answers_of_another_leader_epoch(event):
    state = follower(high_watermark=50)

    assert state.step(event, 0) == []
    assert state.high_watermark == 50


def test_follower_cuts_where_the_epochs_part_not_at_its_high_watermark():
    state = follower(high_watermark=20)

    assert state.step(LogDiverged(5, EpochEnd(3, 60), EpochEnd(3, 80), 100), 0) == [TruncateTo(60)]
    assert state.high_watermark == 20


def test_follower_lowers_its_high_watermark_with_an_unclean_leader():
    state = follower(high_watermark=90)

    assert state.step(LogDiverged(5, EpochEnd(3, 60), EpochEnd(3, 80), 100), 0) == [TruncateTo(60)]
    assert state.high_watermark == 60


def test_follower_without_the_leaders_epoch_cuts_to_the_one_before():
    assert truncation_offset(EpochEnd(4, 70), EpochEnd(2, 40), 100) == 40


def test_follower_whose_epochs_are_all_older_cuts_to_the_leaders_end():
    assert truncation_offset(EpochEnd(4, 70), None, 100) == 70


def test_follower_starts_again_where_the_leaders_log_begins_when_it_is_behind():
    state = follower(high_watermark=90)

    assert state.step(LogOutOfRange(5, 500, 0, 100), 0) == [RestartLogAt(500)]
    assert state.high_watermark == 500


def test_follower_with_records_in_range_is_never_emptied():
    state = follower(high_watermark=90)

    assert state.step(LogOutOfRange(5, 50, 0, 100), 0) == []


def test_leader_finds_no_divergence_in_a_prefix_of_its_log():
    assert find_divergence(3, 60, EpochEnd(3, 80)) is None
    assert find_divergence(3, 81, EpochEnd(3, 80)) == EpochEnd(3, 80)
    assert find_divergence(3, 10, EpochEnd(2, 80)) == EpochEnd(2, 80)


@st.composite
def histories(draw):
    """Return the logs, as the epoch of each record, of leaders that each began with a part of an earlier log."""
    logs = [[]]
    for epoch in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from(logs))
        cut = draw(st.integers(0, len(base)))
        logs.append(base[:cut] + [epoch] * draw(st.integers(0, 3)))
    return logs


def end_for(log, epoch):
    """Kafka's endOffsetFor on a log given as the epoch of each record."""
    if not log or epoch > log[-1]:
        return None
    if epoch == log[-1]:
        return EpochEnd(epoch, len(log))
    known = [e for e in log if e <= epoch]
    return EpochEnd(known[-1] if known else epoch, len(known))


@given(histories(), st.data())
def test_truncation_rounds_end_in_a_prefix_and_cut_no_common_record(logs, data):
    theirs = [*data.draw(st.sampled_from(logs)), 99]
    log = data.draw(st.sampled_from(logs))
    common = 0
    while common < min(len(theirs), len(log)) and theirs[common] == log[common]:
        common += 1
    while log:
        answer = find_divergence(log[-1], len(log), end_for(theirs, log[-1]))
        if answer is None:
            break
        offset = truncation_offset(answer, end_for(log, answer.epoch), len(log))
        assert offset < len(log), "no progress"
        assert offset >= common, "a common record was cut"
        log = log[:offset]
    assert log == theirs[: len(log)]
