"""The plan of each micro-batch: its end, its ranges, and its losses. Pure: the logs are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tidelog_foundation.ids import TopicId
from tidelog_spark.source.losses import Loss, LossReason, retention_loss, topic_loss
from tidelog_spark.source.offsets import NO_TOPIC_ID, OffsetRange, Offsets, PartitionKey, limit_offsets, plan_ranges
from tidelog_spark.source.stream_offsets import Logs, StreamOffsets

IsSelected = Callable[[str], bool]
"""Returns whether the options select a topic of this name."""


def next_end(start: StreamOffsets, logs: Logs, target: Logs | None, max_offsets: int | None) -> StreamOffsets:
    """Return the end of the micro-batch after ``start``: the ends of the logs, within ``max_offsets``.

    It is at most the ``target``, which Trigger.AvailableNow has, and never before the start. Deleted topics and
    those that the options no longer select keep their offsets, so that nothing is read again if they return. A topic
    that was created again begins anew, with its new id.
    """
    latest = _capped(start, logs, target)
    ids = {topic: logs.ids[topic] for topic, _ in latest}
    begin = start.begin_of(ids)
    # Lost offsets take no part in the limit: they would delay those that exist.
    first = {key: max(begin.get(key, 0), logs.earliest[key]) for key in latest}
    end = latest if max_offsets is None else limit_offsets(first, latest, max_offsets)
    return StreamOffsets({**begin, **end}, {**start.ids, **ids})


def pending_offsets(start: StreamOffsets, end: StreamOffsets) -> int:
    """Return the number of offsets between ``start`` and ``end``."""
    return sum(planned.size for planned in plan_ranges(start.begin_of(end.ids), end.offsets))


def find_topic_losses(
    start: StreamOffsets, logs: Logs, is_selected: IsSelected, before: Logs | None = None
) -> list[Loss]:
    """Return the losses of topics that are deleted, created again, or shorter than before.

    ``before`` is an earlier look at the logs: its end tells how much a deleted topic had.
    """
    seen = before or Logs()
    found: list[Loss] = []
    for key, offset in sorted(start.offsets.items()):
        topic = key[0]
        if not is_selected(topic):
            continue
        if topic not in logs.ids or not start.has_same_topic(topic, logs.ids):
            end = seen.latest.get(key, offset) if start.has_same_topic(topic, seen.ids) else offset
            topic_id = start.ids.get(topic, NO_TOPIC_ID)
            found.append(topic_loss(key, topic_id, offset, max(offset, end), logs.ids.get(topic)))
        elif key in logs.latest and logs.latest[key] < offset:
            detail = f"the partition ends at {logs.latest[key]}, but it was read up to {offset} before"
            found.append(Loss(LossReason.TRUNCATION, *key, logs.latest[key], offset, logs.ids[topic], detail))
    return found


def plan_batch(
    start: StreamOffsets, end: StreamOffsets, logs: Logs, is_selected: IsSelected
) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the ranges of a micro-batch that exist in the logs, and its losses."""
    # An end without ids, from an older checkpoint, gets those of the topics that exist.
    ids = {**logs.ids, **end.ids}
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for planned in plan_ranges(start.begin_of(end.ids), end.offsets, ids):
        kept, lost = _existing(planned, logs, is_selected)
        ranges += kept
        losses += lost
    return ranges, losses


def offsets_gone(planned: Iterable[OffsetRange], logs: Logs, is_selected: IsSelected) -> int:
    """Return the number of planned offsets that the logs no longer have: the most that tasks can have lost of them.

    It counts all offsets of topics that are no longer selected, which only a replayed micro-batch has: ``logs`` lacks
    these topics.
    """
    gone = 0
    for each in planned:
        if not is_selected(each.topic):
            gone += each.size
            continue
        end = logs.latest.get((each.topic, each.partition), each.end_offset)
        kept, _ = _existing(each, logs, is_selected)
        gone += each.size - sum(max(0, min(part.end_offset, end) - part.start_offset) for part in kept)
    return gone


def _existing(planned: OffsetRange, logs: Logs, is_selected: IsSelected) -> tuple[Sequence[OffsetRange], list[Loss]]:
    key = (planned.topic, planned.partition)
    if not is_selected(planned.topic):
        return [planned], []
    if logs.ids.get(planned.topic) != planned.topic_id:
        new_id = logs.ids.get(planned.topic)
        return [], [topic_loss(key, planned.topic_id, planned.start_offset, planned.end_offset, new_id)]
    earliest = logs.earliest.get(key, 0)
    if earliest <= planned.start_offset:
        return [planned], []
    lost = retention_loss(
        key,
        planned.topic_id,
        planned.start_offset,
        min(earliest, planned.end_offset),
        (earliest, logs.latest[key]),
    )
    return plan_ranges({key: earliest}, {key: planned.end_offset}, {planned.topic: planned.topic_id}), [lost]


def _capped(start: StreamOffsets, logs: Logs, target: Logs | None) -> Offsets:
    if target is None:
        return dict(logs.latest)
    # In an earlier run a restarted query may have read beyond the target; it never goes back.
    begin = start.begin_of(logs.ids)
    return {
        key: min(offset, max(target.latest[key], begin.get(key, 0)))
        for key, offset in logs.latest.items()
        if _is_in(key, logs.ids, target)
    }


def _is_in(key: PartitionKey, ids: Mapping[str, TopicId], target: Logs) -> bool:
    return key in target.latest and target.ids[key[0]] == ids[key[0]]
