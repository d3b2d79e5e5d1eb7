"""The plan of a micro-batch from its start and the logs: new, deleted and returning topics, and losses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.ids import TopicId
from tidelog_spark.source.losses import DataLossError, LossLedger, LossReason, losses_outside
from tidelog_spark.source.micro_batches import find_topic_losses, next_end, plan_batch
from tidelog_spark.source.offsets import Offsets
from tidelog_spark.source.stream_offsets import Logs, StreamOffsets, from_json, to_json

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
KEYS = st.tuples(st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 12))
OFFSETS = st.dictionaries(KEYS, st.integers(0, 1 << 40), max_size=8)
IDS = st.dictionaries(st.sampled_from(["a", "b.c", "d-1"]), st.binary(min_size=16, max_size=16).map(TopicId))
AT = StreamOffsets({("t", 0): 5}, {"t": A})


def logs_of(ids: dict[str, TopicId], latest: Offsets, earliest: Offsets | None = None) -> Logs:
    return Logs(ids, dict.fromkeys(latest, 0) | (earliest or {}), latest)


def is_selected(topic: str) -> bool:
    return topic != "other"


@given(OFFSETS, IDS, st.booleans())
def test_json_of_offsets_round_trips_and_has_one_text(
    offsets: Offsets, ids: dict[str, TopicId], is_first: bool
) -> None:
    stream = StreamOffsets(offsets, ids, StreamOffsets(offsets, ids) if is_first else None)
    text = json.dumps(to_json(stream))
    assert from_json(json.loads(text)) == stream
    backwards = StreamOffsets(dict(sorted(offsets.items(), reverse=True)), dict(reversed(ids.items())), stream.start)
    assert json.dumps(to_json(backwards)) == text


def test_json_of_offsets_is_that_of_kafkas_source_with_ids() -> None:
    tree = to_json(StreamOffsets({("t", 10): 1, ("t", 9): 2, ("s", 0): 3}, {"t": TopicId(bytes(16))}))
    assert json.dumps(tree) == '{"s": {"0": 3}, "t": {"9": 2, "10": 1}, "@ids": {"t": "AAAAAAAAAAAAAAAAAAAAAA"}}'


@pytest.mark.parametrize("tree", [{"t": 5}, {"t": {"x": 1}}, {"@ids": {"t": "short"}}, {"@ids": 3}, {"@new": 1}])
def test_checkpoint_that_is_not_of_the_source_is_refused(tree: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="the checkpoint has offsets that the source cannot read"):
        from_json(tree)


def test_new_partitions_and_topics_are_read_from_their_first_record() -> None:
    logs = logs_of({"t": A, "u": B}, {("t", 0): 8, ("t", 1): 4, ("u", 0): 2})
    end = next_end(AT, logs, None, None)
    ranges, losses = plan_batch(AT, end, logs, is_selected)
    assert list(map(str, ranges)) == ["t-0 [5, 8)", "t-1 [0, 4)", "u-0 [0, 2)"]
    assert [planned.topic_id for planned in ranges] == [A, A, B]
    assert losses == []


@pytest.mark.parametrize(("ids", "latest"), [({}, {}), ({"t": B}, {("t", 0): 9})])
def test_rest_of_a_deleted_topic_is_counted_up_to_its_last_known_end(ids: dict[str, TopicId], latest: Offsets) -> None:
    logs, before = logs_of(ids, latest), logs_of({"t": A}, {("t", 0): 12})
    [loss] = find_topic_losses(AT, logs, is_selected, before)
    assert (loss.topic_id, loss.start_offset, loss.end_offset, loss.size) == (A, 5, 12, 7)
    assert loss.reason is (LossReason.RECREATION if ids else LossReason.DELETION)
    end = next_end(AT, logs, None, None)
    assert (end.offsets, end.ids) == (({("t", 0): 9}, {"t": B}) if ids else (AT.offsets, AT.ids))


def test_topic_that_returns_after_an_absence_continues_at_its_offset() -> None:
    absent = next_end(AT, logs_of({}, {}), None, None)
    end = next_end(absent, logs_of({"t": A}, {("t", 0): 8}), None, None)
    assert list(map(str, plan_batch(absent, end, logs_of({"t": A}, {("t", 0): 8}), is_selected)[0])) == ["t-0 [5, 8)"]


def test_topic_that_is_no_longer_selected_is_no_loss_and_keeps_its_offset() -> None:
    start = StreamOffsets({("other", 0): 3, ("t", 0): 5}, {"other": B, "t": A})
    logs = logs_of({"t": A}, {("t", 0): 6})
    assert find_topic_losses(start, logs, is_selected) == []
    assert next_end(start, logs, None, None).offsets == {("other", 0): 3, ("t", 0): 6}


def test_log_that_became_shorter_is_a_loss_and_continues_at_its_end() -> None:
    logs = logs_of({"t": A}, {("t", 0): 3})
    [loss] = find_topic_losses(AT, logs, is_selected)
    assert (loss.reason, loss.size) == (LossReason.TRUNCATION, 0)
    assert "ends at 3, but it was read up to 5" in str(loss)
    assert next_end(AT, logs, None, None).offsets == {("t", 0): 3}


def test_lost_offsets_take_no_part_in_the_limit() -> None:
    logs = logs_of({"t": A}, {("t", 0): 1_000}, {("t", 0): 900})
    end = next_end(AT, logs, None, 10)
    ranges, [loss] = plan_batch(AT, end, logs, is_selected)
    assert (list(map(str, ranges)), loss.size) == (["t-0 [900, 910)"], 895)


def test_ledger_counts_each_loss_once() -> None:
    [loss] = find_topic_losses(AT, logs_of({}, {}), is_selected, logs_of({"t": A}, {("t", 0): 9}))
    ledger = LossLedger()
    for _ in range(2):
        ledger.begin_planning()
        ledger.report([loss], fail_on_data_loss=False)
    assert (ledger.total, ledger.last) == (4, ())
    with pytest.raises(DataLossError):
        ledger.report([loss], fail_on_data_loss=True)


def test_offsets_of_an_option_outside_the_log_are_losses() -> None:
    logs = logs_of({"t": A}, {("t", 0): 9, ("t", 1): 9, ("t", 2): 9}, {("t", 0): 3})
    low, high = losses_outside("startingOffsets", {("t", 0): 2, ("t", 1): 10, ("t", 2): 9}, logs)
    assert (low.reason, low.size) == (LossReason.RETENTION, 1)
    assert "startingOffsets of t-0 is 2, the partition has [3, 9)" in str(low)
    assert (high.reason, high.size) == (LossReason.TRUNCATION, 0)
