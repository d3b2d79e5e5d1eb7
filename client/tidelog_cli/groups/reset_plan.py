"""Computes the new offsets of a group from its committed ones and the bounds of the logs. Pure.

The rules are those of kafka-consumer-groups.sh (``GroupOffsetsResetter``, KIP-122): an offset outside the log moves
into it, with a warning; a time after the last record means the log's end.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from tidelog.cluster import TopicPartitionKey
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Reset to the log start offset."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Reset to the log end offset."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Reset to the committed offset; to the log's end without one."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Reset to one offset in all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Move the committed offset forward by ``count``, or back if it is negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """Reset to the first record of a time or later, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToGiven:
    """Reset each partition to its offset in a file."""

    offsets: Mapping[TopicPartitionKey, int]


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToGiven


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of a partition, the end exclusive; ``at_time`` is the offset found by time, None if none was found."""

    log_start_offset: int
    log_end_offset: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The offsets to commit, ordered by partition, and warnings about offsets that differ from the request."""

    offsets: dict[TopicPartitionKey, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def plan_reset(
    target: ResetTarget, bounds: Mapping[TopicPartitionKey, LogBounds], committed: Mapping[TopicPartitionKey, int]
) -> ResetPlan:
    """Return the new offsets of the partitions in ``bounds``; ``committed`` has the group's current offsets.

    Raises:
        TidelogError: _NO_OFFSET, a shift without a committed offset.
    """
    plan = ResetPlan()
    for key in sorted(bounds):
        plan.offsets[key] = _new_offset(target, key, bounds[key], committed.get(key), plan.warnings)
    return plan


def _new_offset(
    target: ResetTarget, key: TopicPartitionKey, bounds: LogBounds, committed: int | None, warnings: list[str]
) -> int:
    match target:
        case ToEarliest():
            return bounds.log_start_offset
        case ToLatest():
            return bounds.log_end_offset
        case ToCurrent():
            return bounds.log_end_offset if committed is None else committed
        case ToOffset(offset):
            return _clipped(key, offset, bounds, warnings)
        case ToGiven(offsets):
            return _clipped(key, offsets[key], bounds, warnings)
        case ShiftBy(count):
            if committed is None:
                text = f"the offset of {key[0]}-{key[1]} cannot be shifted: none is committed"
                raise error_for(ErrorCode._NO_OFFSET, text)
            return _clipped(key, committed + count, bounds, warnings)
        case ToTime():
            if bounds.at_time is None:
                warnings.append(
                    f"{key[0]}-{key[1]} has no record of that time or later; using its end, {bounds.log_end_offset}"
                )
                return bounds.log_end_offset
            return bounds.at_time
    assert_never(target)


def _clipped(key: TopicPartitionKey, offset: int, bounds: LogBounds, warnings: list[str]) -> int:
    clipped = max(min(offset, bounds.log_end_offset), bounds.log_start_offset)
    if clipped != offset:
        where = "above the end" if offset > clipped else "below the start"
        warnings.append(f"offset {offset} is {where} of {key[0]}-{key[1]}; using {clipped}")
    return clipped


def to_csv(offsets: Mapping[str, Mapping[TopicPartitionKey, int]]) -> str:
    """Return offsets by group in the form of ``--from-file``: ``topic,partition,offset``; ``group,...`` for several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, of_group in sorted(offsets.items()):
        prefix = [group] if len(offsets) > 1 else []
        writer.writerows([*prefix, topic, partition, offset] for (topic, partition), offset in sorted(of_group.items()))
    return text.getvalue()


def parse_csv(text: str, groups: Iterable[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """Return the offsets of a file by group; lines without a group belong to the single group of the request.

    Raises:
        TidelogError: _INVALID_ARG, a line is invalid, or a partition is named twice.
    """
    asked = list(groups)
    found: dict[str, dict[TopicPartitionKey, int]] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        if len(row) == 3 and len(asked) == 1:
            row = [asked[0], *row]
        if len(row) != 4 or not (row[2].isdecimal() and row[3].isdecimal()):
            form = "topic,partition,offset" if len(asked) == 1 else "group,topic,partition,offset"
            raise _invalid(f'line {number} is not {form}: "{",".join(row)}"')
        group, topic, partition, offset = row[0], row[1], int(row[2]), int(row[3])
        of_group = found.setdefault(group, {})
        if (topic, partition) in of_group:
            raise _invalid(f"line {number} names {topic}-{partition} again")
        of_group[topic, partition] = offset
    return found


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode._INVALID_ARG, text)
